"""The `replyline` command line as typed."""

import asyncio
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from ops.stack.processes import Child, free_port
from shared.wire.topics import TopicNames
from tests.support.system import REPLY_PARTITIONS, MakeSystem, eventually

REPLYLINE = Path(sys.executable).with_name("replyline")


@dataclass(frozen=True, slots=True)
class Done:
    status: int
    out: str
    err: str


async def replyline(*arguments: str, limit_s: float = 90, **env: str) -> Done:
    """Run a command until it ends."""
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
async def test_a_taken_port_gives_one_line(command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = await replyline(command, REPLYLINE_GATEWAY__PORT=port, REPLYLINE_WORKER__ENGINE="fake")
    assert done.status == 1
    (line,) = done.err.splitlines()
    assert port in line
    assert "Traceback" not in done.out


async def test_a_missing_model_stops_the_gateway_before_it_serves() -> None:
    done = await replyline("gateway", REPLYLINE_MODEL__DIR="/nowhere", REPLYLINE_GATEWAY__PORT="0")
    assert done.status == 2, done
    (line,) = done.err.splitlines()
    assert "/nowhere" in line


async def test_an_absent_server_gives_one_line() -> None:
    """The gateway is absent, then Kafka."""
    address = f"127.0.0.1:{free_port()}"
    asked, described = await asyncio.gather(
        replyline("ask", "Hello?", "--url", f"ws://{address}/ws"),
        replyline("topics", "describe", REPLYLINE_KAFKA__BOOTSTRAP_SERVERS=address),
    )
    for done, told in ((asked, "replyline up"), (described, address)):
        assert done.status == 1
        (line,) = done.err.splitlines()
        assert told in line


async def test_topics_are_created_once_and_described(new_system: MakeSystem) -> None:
    """On the real broker: existing topics stay, and missing ones are reported with the command that creates them."""
    system, topics = await new_system(), TopicNames().all(request_partitions=1, reply_partitions=1)
    prefix = {**system.environment(), "REPLYLINE_KAFKA__TOPIC_PREFIX": f"{system.prefix}cli."}
    described = await replyline("topics", "describe", **prefix)
    assert described.status == 1
    assert described.out.count("missing") == len(topics)
    assert "replyline topics create" in described.err
    for outcome in ("created", "exists"):
        created = await replyline("topics", "create", **prefix)
        assert (created.status, created.err) == (0, "")
        assert created.out.count(outcome) == len(topics)
        assert f"{system.prefix}cli.chat.requests.short: {outcome}, 3 partitions" in created.out
    described = await replyline("topics", "describe", **prefix)
    assert (described.status, described.err) == (0, "")
    assert f"{system.prefix}cli.chat.replies: {REPLY_PARTITIONS} partitions" in described.out


async def test_the_commands_gateway_and_worker_start_a_gateway_and_a_worker(new_system: MakeSystem) -> None:
    """`replyline gateway` and `replyline worker` become these processes themselves."""
    system = await new_system()
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


async def _answer_of(url: str) -> str | None:
    done = await replyline("ask", "Hello?", "--url", url, "--max-output-tokens", "7")
    return done.out.strip("\n") if done.status == 0 and "AI answer" in done.err else None
