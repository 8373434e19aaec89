"""`replyline up` as typed, and other commands next to it."""

import asyncio
import json
import os
import pty
import signal
import socket
import stat
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ops.stack.own_pages import open_page
from ops.stack.processes import Child, free_port
from ops.stack.readiness import wait_ready
from shared.wire.lanes import CHAMPION, LANES, Lane
from tests.integration.commands.test_cli import REPLYLINE, replyline
from tests.support.system import eventually
from tests.support.wire import Client


@dataclass(slots=True)
class Up:
    """`replyline up`, running."""

    child: Child
    log: Path
    port: int

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    async def ready(self) -> dict[str, Any]:
        def line() -> dict[str, Any] | None:
            assert self.child.running, self.log.read_text()
            return next((line for line in self.lines() if line["event"] == "ready"), None)

        found: dict[str, Any] = await eventually(line, limit_s=60)
        return found


# The scripted engine writes every answer itself.
SCRIPTED = {
    "REPLYLINE_WORKER__ENGINE": "fake",
    "REPLYLINE_ANSWERS__POLICY": "model",
    "REPLYLINE_ANSWERS__GUARD": "false",
}


@asynccontextmanager
async def running_up(folder: Path) -> AsyncIterator[Up]:
    """Start it on a free port, with the scripted engine."""
    port, log = free_port(), folder / "up.log"
    env = {
        "REPLYLINE_GATEWAY__PORT": str(port),
        "REPLYLINE_WORKER__METRICS_PORT": "1",  # the next three, as in a shell that has sourced an older demo's file
        "REPLYLINE_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "REPLYLINE_REDIS__URL": "redis://127.0.0.1:1/0",
        **SCRIPTED,
        "REPLYLINE_HANDOFF__ENABLED": "true",
    }
    child = Child.start([REPLYLINE, "up"], env=env, log=log)
    yield Up(child, log, port)
    children = psutil.Process(child.process.pid).children(recursive=True) if child.running else []
    child.stop(timeout_s=30)
    for left in children:
        if left.is_running() and left.status() != psutil.STATUS_ZOMBIE:
            left.kill()


@pytest_asyncio.fixture
async def up(tmp_path: Path) -> AsyncIterator[Up]:
    """A demo that the test ends."""
    async with running_up(tmp_path) as up:
        yield up


@pytest_asyncio.fixture(scope="module")
async def ready(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, Any]]:
    """Yield the ready line of a demo that lives as long as its tests; SIGTERM ends it and removes its file."""
    async with running_up(tmp_path_factory.mktemp("up")) as up:
        said = await up.ready()
        yield said
        up.child.signal(signal.SIGTERM)
        assert await asyncio.to_thread(up.child.process.wait, 30) == 0
        assert said["env"].removeprefix(".run/") not in os.listdir(".run")  # noqa: PTH208 - a look, no wait


def port_of(ready: dict[str, Any]) -> int:
    return int(ready["page"].rpartition(":")[2].removesuffix("/"))


async def test_up_prints_every_address_and_answers(ready: dict[str, Any]) -> None:
    """One line `ready` has all addresses; `ask` streams an answer from there; the second question has the first in its
    history.
    """
    assert ready["page"] == f"http://127.0.0.1:{port_of(ready)}/"
    assert ready["ws"] == f"ws://127.0.0.1:{port_of(ready)}/ws"
    with open_page(f"{ready['openai']}/models", timeout_s=5) as models:
        assert json.load(models)["object"] == "list"
    async with aio.insecure_channel(ready["grpc"]) as channel:
        health = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert health.status == health_pb2.HealthCheckResponse.SERVING
    assert ready["kafka"].startswith("127.0.0.1:")
    assert ready["redis"].startswith("redis://")
    assert len(ready["metrics"]) == 2
    assert all(address.endswith("/metrics") for address in ready["metrics"])
    asked = await replyline("ask", "How do I return an item?", "--url", ready["ws"], "--max-output-tokens", "12")
    assert asked.status == 0
    assert len(asked.out.strip("\n")) == 12
    assert "AI answer" in asked.err
    assert "based on" in asked.err
    whole = await replyline("ask", "Where is it?", "--url", ready["ws"], "--max-output-tokens", "12", "--json")
    response = json.loads(whole.out)
    assert (response["source"], len(response["output_text"])) == ("model", 12)


async def variables_of(file: str) -> dict[str, str]:
    """Return the variables of a shell that sources it."""
    told = await asyncio.create_subprocess_exec(
        *("/usr/bin/env", "-i", "/bin/sh", "-c", f'. "{file}" && env'), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await told.communicate()
    lines = [line.partition("=") for line in out.decode().splitlines() if line.startswith("REPLYLINE_")]
    return {name: value for name, _, value in lines}


@asynccontextmanager
async def following(**env: str) -> AsyncIterator[asyncio.StreamReader]:
    """Yield the lines of `handoffs follow`."""
    process = await asyncio.create_subprocess_exec(
        *(str(REPLYLINE), "handoffs", "follow", "--json"),
        env={**os.environ, **env},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        yield process.stdout
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def asked_for_a_person(ws: str) -> str:
    """Ask for a person in a new conversation."""
    async with Client.connect(ws) as client:
        await client.send({"type": "handoff.request"})
        created = await client.of_type("handoff.created")
    name: str = created["handoff_id"]
    return name


async def test_the_desk_is_where_the_demo_says(ready: dict[str, Any]) -> None:
    status, page = await asyncio.to_thread(_page, ready["desk"])
    assert (status, "<title>" in page) == (200, True)


def _page(url: str) -> tuple[int, str]:
    with open_page(url, timeout_s=10) as page:
        return page.status, page.read().decode()


async def test_a_shell_uses_the_demo_by_its_file(ready: dict[str, Any]) -> None:
    """Only its owner can read it. With it hand-offs are followed, and the demo is asked."""
    assert ready["env"] == f".run/demo-{port_of(ready)}.env"
    assert stat.S_IMODE(os.stat(ready["env"]).st_mode) == 0o600  # noqa: PTH116 - a look, no wait
    env = await variables_of(ready["env"])
    assert (env["REPLYLINE_KAFKA__BOOTSTRAP_SERVERS"], env["REPLYLINE_URL"]) == (ready["kafka"], ready["ws"])
    made: list[str] = []
    async with following(**env) as lines:
        heard = asyncio.create_task(lines.readline())
        async with asyncio.timeout(90):
            while not heard.done():  # it does not report when it begins to listen
                made.append(await asked_for_a_person(ready["ws"]))
                await asyncio.wait([heard], timeout=4)  # a tenant may have thirty a minute
        told = json.loads(heard.result())
    assert (told["id"] in made, told["open"]) == (True, "yes")
    asked = await replyline("ask", "Hello?", "--max-output-tokens", "4", **env)
    assert (asked.status, len(asked.out.strip("\n"))) == (0, 4)
    described = await replyline("topics", "describe", **env)
    assert (described.status, described.err) == (0, "")


@dataclass(slots=True)
class Terminal:
    """`replyline chat` in a pseudo-terminal."""

    process: asyncio.subprocess.Process
    descriptor: int
    shown: str = ""

    async def until(self, text: str) -> None:
        """Read until the output since the last call ends with this."""
        async with asyncio.timeout(60):
            while not self.shown.endswith(text):
                self.shown += (await asyncio.to_thread(os.read, self.descriptor, 4_096)).decode()
        self.shown = ""

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())


@asynccontextmanager
async def chatting(url: str) -> AsyncIterator[Terminal]:
    ours, theirs = pty.openpty()
    try:
        process = await asyncio.create_subprocess_exec(
            *(str(REPLYLINE), "chat", "--url", url), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
    finally:
        os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(ours)


async def test_an_interrupt_at_the_prompt_ends_the_chat_immediately(ready: dict[str, Any]) -> None:
    """Before the first question and after an answer, with or without part of the next typed."""
    for questions in ((), ("How do I return an item?", "And when?")):
        async with chatting(ready["ws"]) as terminal:
            await terminal.until("\n› ")
            for question in questions:
                terminal.type(f"{question}\n")
                await terminal.until("\n› ")
            terminal.type("Half a quest")
            terminal.process.send_signal(signal.SIGINT)
            async with asyncio.timeout(5):
                assert await terminal.process.wait() == 0


async def test_doctor_and_diagnose_find_the_demo_by_its_file(ready: dict[str, Any]) -> None:
    """The doctor judges it as a demo and as production: there its single Redis, which evicts, is not enough. Gateway
    and worker, whose ports were chosen automatically, both answer, and the broker reports the lag.
    """
    env = await variables_of(ready["env"])
    demo, production, diagnosed = await asyncio.gather(
        replyline("doctor", REPLYLINE_GATEWAY__PORT=str(port_of(ready))),
        replyline("doctor", **env),
        replyline("diagnose", "--seconds", "1", **env),
    )
    assert (demo.status, demo.err) == (0, "")
    assert "Replyline answers there" in demo.out
    assert f"Replyline runs on port {port_of(ready)}." in demo.out
    assert (production.status, production.err) == (0, "")
    assert f"Kafka {ready['kafka']}" in production.out
    assert "evicts history, hand-offs" in production.out
    assert "embedded" not in production.out
    assert diagnosed.err == ""
    assert diagnosed.out.startswith(f"2 of 2 processes answered; customers connect to: {ready['ws']}\n")


@pytest.mark.parametrize("lane", [lane for lane in LANES if lane != CHAMPION])
async def test_a_lanes_worker_starts_next_to_the_demo(ready: dict[str, Any], tmp_path: Path, lane: Lane) -> None:
    env, port, log = await variables_of(ready["env"]), free_port(), tmp_path / "worker.log"
    env |= {"REPLYLINE_WORKER__LANE": lane, "REPLYLINE_WORKER__ENGINE": "fake"}
    made = await replyline("topics", "create", "--lane", lane, **env)
    assert (made.status, made.err, f"chat.requests.{lane}.short: exists" in made.out) == (0, "", True)
    worker = Child.start([REPLYLINE, "worker"], env={**env, "REPLYLINE_WORKER__METRICS_PORT": str(port)}, log=log)
    try:
        await wait_ready(worker, f"http://127.0.0.1:{port}/ready", log.name)
    finally:
        worker.stop()


async def test_an_interrupt_ends_up_and_leaves_nothing(up: Up) -> None:
    """Ctrl-C during an answer: the answer is completed; status 0, every process gone, every port free."""
    ready = await up.ready()
    children = psutil.Process(up.child.process.pid).children(recursive=True)
    assert len(children) >= 3  # gateway, worker, redis
    async with Client.connect(ready["ws"]) as client:
        event_id = await client.create("Tell me", max_output_tokens=500)
        await client.created(event_id)
        up.child.signal(signal.SIGINT)
        assert len((await client.answer(event_id)).text) == 500
        assert await client.closed() == 4001
    assert await asyncio.to_thread(up.child.process.wait, 30) == 0
    assert [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE] == []
    with socket.create_server(("127.0.0.1", up.port)):
        pass
    assert "Traceback" not in up.log.read_text()


async def test_a_second_interrupt_ends_up_immediately(up: Up) -> None:
    """It comes while the gateway still drains: no process stays, and the answer's end is not waited for."""
    ready = await up.ready()
    children = psutil.Process(up.child.process.pid).children(recursive=True)
    async with Client.connect(ready["ws"]) as client:
        event_id = await client.create("Tell me", max_output_tokens=500)
        await client.created(event_id)
        up.child.signal(signal.SIGINT)
        await client.of_type("session.closing")
        up.child.signal(signal.SIGINT)
        assert await asyncio.to_thread(up.child.process.wait, 30) == -signal.SIGINT
    await asyncio.to_thread(psutil.wait_procs, children, 10)
    assert [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE] == []
    assert "Traceback" not in up.log.read_text()


def part(up: Up, module: str, dead: psutil.Process | None = None) -> psutil.Process | None:
    """Return the running gateway or worker, after the dead one was replaced."""
    with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):  # one ends during the check
        for child in psutil.Process(up.child.process.pid).children():
            if child != dead and child.status() != psutil.STATUS_ZOMBIE and module in child.cmdline():
                return child
    return None


@pytest.mark.parametrize("module", ["workers", "gateway"])
async def test_up_restarts_a_part_that_dies(up: Up, module: str) -> None:
    """One line names the part, how it died and what follows. The question in flight is still answered."""
    ready = await up.ready()
    dead = part(up, module)
    assert dead is not None
    async with Client.connect(ready["ws"]) as client:
        event_id = await client.create("Tell me", max_output_tokens=200)
        await client.text_of(event_id)
        dead.send_signal(signal.SIGSEGV)
        if module == "workers":
            assert (await client.answer(event_id)).text
    await eventually(lambda: part(up, module, dead), limit_s=30)
    told = next(line for line in up.lines() if line["event"] == "part_ended")
    assert (told["pid"], told["restart_in_s"]) == (dead.pid, 0.5)
    assert "was ended by signal 11" in told["cause"]

    async def model_answers() -> bool:
        asked = await replyline("ask", "Where is it?", "--url", ready["ws"], "--max-output-tokens", "4", "--json")
        return asked.status == 0 and json.loads(asked.out)["source"] == "model"

    await eventually(model_answers, limit_s=45)


async def test_up_ends_when_a_part_dies_repeatedly(up: Up) -> None:
    """The last line says which and how often; nothing is left."""
    await up.ready()
    children = psutil.Process(up.child.process.pid).children(recursive=True)
    worker = None
    for _ in range(5):
        worker = await eventually(lambda dead=worker: part(up, "workers", dead), limit_s=30)
        worker.kill()
    assert await asyncio.to_thread(up.child.process.wait, 30) == 1
    assert "the worker was ended by signal 9 (Killed), and ended 5 times in 60 s" in up.log.read_text()
    assert "Traceback" not in up.log.read_text()
    assert [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE] == []


def test_on_a_terminal_up_says_what_to_do_next_and_ask_finds_it(tmp_path: Path) -> None:
    """A person reads where the page is, what to ask and how it ends; the log's lines go to a file. `ask` in the same
    folder needs no address, though the port is not the usual one."""
    port, (terminal, other_end) = free_port(), pty.openpty()
    env = {**os.environ, **SCRIPTED, "REPLYLINE_GATEWAY__PORT": "1"}
    env.pop("REPLYLINE_URL", None)
    typed = [REPLYLINE, "up", "--port", str(port)]
    up = subprocess.Popen(typed, cwd=tmp_path, env=env, stdin=other_end, stdout=other_end, stderr=other_end)
    os.close(other_end)
    shown = b""
    try:
        while b"Ctrl-C ends it." not in shown:
            shown += os.read(terminal, 4_096)
        for word in (f"http://127.0.0.1:{port}/", 'ask "', f".run/demo-{port}.log"):
            assert word.encode() in shown
        assert b"{" not in shown, "the log's lines are in the file"
        typed = [REPLYLINE, "ask", "Where is it?", "--max-output-tokens", "12"]
        asked = subprocess.run(typed, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True, check=True)
        assert len(asked.stdout.strip("\n")) == 12
        events = [
            json.loads(line)["event"] for line in (tmp_path / ".run" / f"demo-{port}.log").read_text().splitlines()
        ]
        assert {"engine_loaded", "gateway_ready", "ready"} <= set(events)
    finally:
        up.send_signal(signal.SIGINT)
        assert up.wait(30) == 0
        os.close(terminal)
