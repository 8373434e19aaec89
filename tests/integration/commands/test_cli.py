"""`replyline` as it is typed."""

import asyncio
import signal
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from typer.main import get_command
from typer.testing import CliRunner

from ops.cli import app
from ops.stack.processes import Child, free_port
from shared.settings import describe
from tests.support.system import MakeSystem, System, eventually

REPLYLINE = Path(sys.executable).with_name("replyline")


def commands_of(command: Any, *path: str) -> Iterator[tuple[str, ...]]:
    """It and all that are under it."""
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands_of(inner, *path, name)


COMMANDS = list(commands_of(get_command(app)))


@dataclass(frozen=True, slots=True)
class Done:
    status: int
    out: str
    err: str


async def replyline(*arguments: str, limit_s: float = 30, **env: str) -> Done:
    """Type a command and wait for its end."""
    process = await asyncio.create_subprocess_exec(
        "/usr/bin/env",
        *(f"{name}={value}" for name, value in {"COLUMNS": "200", "REPLYLINE_AUTH__MODE": "anonymous", **env}.items()),
        str(REPLYLINE),
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(limit_s):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        raise
    assert process.returncode is not None
    return Done(process.returncode, out.decode(), err.decode())


@pytest.mark.parametrize("command", ["up", "gateway"])
async def test_a_port_that_is_taken_is_one_line(command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = await replyline(command, REPLYLINE_GATEWAY__PORT=port, REPLYLINE_WORKER__ENGINE="fake")
    assert done.status == 1
    (line,) = done.err.splitlines()
    assert port in line
    assert "Traceback" not in done.out


@pytest.mark.parametrize("command", ["up", "gateway", "worker", "doctor", "settings", "topics describe"])
async def test_a_bad_setting_is_one_line_that_names_it(command: str) -> None:
    done = await replyline(*command.split(), REPLYLINE_GATEWAY__PORT="70000")
    assert done.status == 2
    (line,) = done.err.splitlines()
    assert "REPLYLINE_GATEWAY__PORT" in line
    assert "70000" in line
    assert done.out == ""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REPLYLINE_KAFKA__TOPIC_PREFIX", "no spaces"),
        ("REPLYLINE_WORKER__SLOTS", "many"),
        ("REPLYLINE_REDIS__URL", "http://example"),
        ("REPLYLINE_PROMISE__DEADLINE_MS", "-1"),
        ("REPLYLINE_GATEWAY__REPLY_PARTITION", "99"),
        ("REPLYLINE_WROKER__SLOTS", "4"),
        ("REPLYLINE_CONFIG", "/nowhere/replyline.toml"),
        ("REPLYLINE_MODEL__DIR", "/nowhere"),
    ],
)
async def test_whatever_is_wrong_stops_the_process_before_it_serves(name: str, value: str) -> None:
    """With status 2, and one line that says what to change."""
    done = await replyline("gateway", **{name: value, "REPLYLINE_GATEWAY__PORT": "0"})
    assert done.status == 2, done
    (line,) = done.err.splitlines()
    assert name.removeprefix("REPLYLINE_").lower().split("__")[-1] in line.lower() or value in line


@pytest.mark.parametrize(
    ("typed", "named"),
    [
        ("bench --rate abc", "--rate abc"),
        ("bench --broker postgres", "'embedded', 'kafka'"),
        ("bench path --seconds 0", "--seconds 0"),
        ("ask Hello? --deadline-ms 0", "--deadline-ms 0"),
        ("ask", "question"),
        ("ask Hello? and more", "and more"),
        ("bech", "'bench'"),
        ("--no-such", "--no-such"),
        ("bench --rate", "--rate"),
    ],
)
async def test_a_command_line_that_is_wrong_is_one_line_with_the_value_and_where_to_look(
    typed: str, named: str
) -> None:
    done = await replyline(*typed.split())
    assert (done.status, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert line.startswith("replyline: ")
    assert named in line
    assert "--help" in line or "must be" in line


async def test_ask_without_a_gateway_is_one_line(unused_port: int) -> None:
    done = await replyline("ask", "Hello?", "--url", f"ws://127.0.0.1:{unused_port}/ws")
    assert done.status == 1
    (line,) = done.err.splitlines()
    assert "replyline up" in line


@pytest.fixture
def unused_port() -> int:
    return free_port()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command) or "replyline")
def test_help_says_what_a_command_does(command: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, [*command, "--help"], prog_name="replyline")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "Usage: replyline" in done.stdout
    assert [line for line in done.stdout.splitlines() if line.strip().endswith(".")]


async def test_the_installed_command_is_that_one() -> None:
    done = await replyline("--help")
    assert (done.status, done.err) == (0, "")
    assert "Usage: replyline" in done.out


async def test_settings_lists_every_setting_with_its_value_here() -> None:
    done = await replyline("settings", REPLYLINE_GATEWAY__PORT="8123")
    assert (done.status, done.err) == (0, "")
    for variable, _, _ in describe():
        assert variable in done.out
    (port,) = [line for line in done.out.splitlines() if line.startswith("REPLYLINE_GATEWAY__PORT ")]
    assert "8123" in port


async def test_settings_are_a_line_each_where_they_are_piped() -> None:
    """To be searched, and copied, at any width."""
    done = await replyline("settings", COLUMNS="40")
    names = [line.split()[0] for line in done.out.splitlines()[1:]]
    assert names == [variable for variable, _, _ in describe()]


async def test_doctor_finds_what_the_demo_needs() -> None:
    done = await replyline("doctor")
    assert (done.status, done.err) == (0, "")
    for name in ("Python", "CPU engine", "embedded Kafka", "embedded Redis", "Java", "Chromium"):
        assert name in done.out
    assert "make demo can run." in done.out


async def test_doctor_says_what_to_type_where_a_port_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = await replyline("doctor", REPLYLINE_GATEWAY__PORT=str(port))
    assert done.status == 1
    assert f"make demo PORT={port + 1}" in done.out


async def test_doctor_judges_for_production_where_an_address_is_set(unused_port: int) -> None:
    """Unless it is told what for."""
    address = f"127.0.0.1:{unused_port}"
    env = {"REPLYLINE_KAFKA__BOOTSTRAP_SERVERS": address}
    production, demo = [await replyline("doctor", *named, **env) for named in ((), ("--for", "demo"))]
    assert (production.status, demo.status) == (1, 0)
    assert f"Kafka {address}" in production.out
    assert "A gateway and a worker cannot serve from here yet" in production.out
    assert "Chromium" not in production.out
    assert "make demo can run." in demo.out


async def test_topics_are_created_once_and_described(make_system: MakeSystem) -> None:
    """On the real broker: what is there stays, and what is missing has the command that makes it."""
    system = await make_system()
    prefix = {**system.environment(), "REPLYLINE_KAFKA__TOPIC_PREFIX": f"{system.prefix}cli."}
    described = await replyline("topics", "describe", **prefix)
    assert described.status == 1
    assert described.out.count("missing") == 11
    assert "replyline topics create" in described.err
    for outcome in ("created", "exists"):
        created = await replyline("topics", "create", **prefix)
        assert (created.status, created.err) == (0, "")
        assert created.out.count(outcome) == 11
        assert f"{system.prefix}cli.chat.requests.short: {outcome}, 3 partitions" in created.out
    described = await replyline("topics", "describe", **prefix)
    assert (described.status, described.err) == (0, "")
    assert f"{system.prefix}cli.chat.replies: 3 partitions" in described.out


async def test_topics_without_kafka_is_one_line(unused_port: int) -> None:
    done = await replyline("topics", "describe", REPLYLINE_KAFKA__BOOTSTRAP_SERVERS=f"127.0.0.1:{unused_port}")
    assert done.status == 1
    (line,) = done.err.splitlines()
    assert f"127.0.0.1:{unused_port}" in line


async def test_a_gateway_and_a_worker_are_started_by_their_commands(system: System) -> None:
    """`replyline gateway` and `replyline worker` are the very processes."""
    port, metrics_port = free_port(), free_port()
    env = system.environment(gateway__port=port, worker__metrics_port=metrics_port)
    children = [
        Child.start([REPLYLINE, command], env=env, log=system.folder / f"{command}.log")
        for command in ("gateway", "worker")
    ]
    try:
        replies = await eventually(lambda: _answer_of(f"ws://127.0.0.1:{port}/ws"), limit_s=60)
        assert len(replies) == 7
        for child in children:
            child.signal(signal.SIGINT)
        assert [await asyncio.to_thread(child.process.wait, 20) for child in children] == [0, 0]
    finally:
        for child in children:
            child.stop()


@pytest_asyncio.fixture
async def system(make_system: MakeSystem) -> System:
    return await make_system()


async def _answer_of(url: str) -> str | None:
    done = await replyline("ask", "Hello?", "--url", url, "--max-output-tokens", "7")
    return done.out.strip("\n") if done.status == 0 and "AI answer" in done.err else None
