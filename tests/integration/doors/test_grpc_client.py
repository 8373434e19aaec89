"""gRPC's own client against real gateways: the WebSocket's text, deadlines, a gateway that dies or drains."""

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from grpc import aio

from gateway.doors.grpc.replyline.v1 import replyline_pb2 as v1
from ops.stack.processes import free_port
from tests.support.fakes.grpc_doors import GrpcClient, all_of, kinds, refused, said, text_of
from tests.support.shared_system import STANDARD
from tests.support.system import MakeSystem, Service, System, eventually
from tests.support.wire import Client

pytestmark = STANDARD
ROOT = Path(__file__).parents[3]
TOOLS = {
    "grpcurl": "fullstorydev/grpcurl/cmd/grpcurl@v1.9.4",
    "grpc-health-probe": "grpc-ecosystem/grpc-health-probe@v0.4.61",
}


@dataclass(frozen=True)
class Door:
    service: Service
    address: str

    @asynccontextmanager
    async def client(self) -> AsyncIterator[GrpcClient]:
        async with aio.insecure_channel(self.address) as channel:
            yield GrpcClient(channel)


async def door_at(system: System, partition: int) -> Door:
    port = free_port()
    service = system.gateway(gateway__reply_partition=partition, gateway__grpc_port=port)
    return Door(await service.ready(), f"127.0.0.1:{port}")


@pytest_asyncio.fixture(scope="module")
async def doors(system: System, gateway: Service) -> list[Door]:
    """Two gateways that can replace each other."""
    del gateway
    return [await door_at(system, partition) for partition in (2, 3)]


async def test_a_grpc_answer_equals_the_websockets(doors: list[Door]) -> None:
    async with doors[0].client() as client, Client.connect(doors[0].service.ws) as socket:
        messages = await all_of(client.respond("Tell me all", max_output_tokens=300, seed=7))
        chat = client.chat()
        await chat.write(said(session_start=v1.SessionStart()))
        asked = v1.ResponseCreate(event_id="e", input="Tell me all", max_output_tokens=300, seed=7)
        await chat.write(said(response_create=asked))
        await chat.done_writing()
        told = await all_of(chat)
        answer = await socket.ask("Tell me all", max_output_tokens=300, seed=7)
    assert kinds(messages).count("response_output_text_delta") > 1
    assert text_of(messages) == messages[-1].response_done.response.output_text == answer.text
    assert text_of(told) == answer.text


async def test_at_a_calls_deadline_the_client_gets_the_text_so_far(new_system: MakeSystem) -> None:
    """The client gets the model's text up to its deadline, not its own DEADLINE_EXCEEDED. A worker that has seen long
    answers would leave this one to the FAQ immediately, so this test starts a fresh worker. A worker's first
    question waits for Kafka to store the note that its partition is held, on a busy machine longer than this deadline;
    so that is another question.
    """
    system = await new_system(worker__fake_decode_ms_per_step=5, worker__reply_interval_ms=0)
    door, _ = await asyncio.gather(door_at(system, 0), system.worker().ready())
    async with door.client() as client:
        await all_of(client.respond("Hello", max_output_tokens=1))
        messages = await all_of(client.respond("Tell me all", max_output_tokens=2_000, seed=7, timeout=4))
    response = messages[-1].response_done.response
    assert (response.status, response.reason) == (v1.STATUS_INCOMPLETE, v1.REASON_DEADLINE)
    assert text_of(messages) == response.output_text


async def test_a_session_cancels_its_answer_at_the_worker(doors: list[Door], worker: Service) -> None:
    before = await worker.metric("infer_total", status="cancelled")
    async with doors[0].client() as client:
        chat = client.chat()
        await chat.write(said(session_start=v1.SessionStart()))
        await chat.write(said(response_create=v1.ResponseCreate(event_id="e", input="All", max_output_tokens=2_000)))
        seen = await until_text(chat)
        await chat.write(said(response_cancel=v1.ResponseCancel(target_event_id="e")))
        await chat.done_writing()
        response = (await all_of(chat))[-1].response_done.response
        assert (response.status, response.reason) == (v1.STATUS_CANCELLED, v1.REASON_CLIENT)
        assert len(text_of(seen)) <= len(response.output_text) < 2_000
        await eventually(lambda: _more(worker, before))


async def _more(worker: Service, before: float) -> bool:
    return await worker.metric("infer_total", status="cancelled") > before


async def until_text(call: Any) -> list[Any]:
    """Read until a message has text."""
    seen = []
    while not text_of(seen):
        seen.append(await call.read())
    return seen


async def test_a_retry_at_another_gateway_is_computed_once(doors: list[Door], worker: Service) -> None:
    before = await worker.metric("infer_total")

    async def ask(door: Door) -> str:
        async with door.client() as client:
            key = (("idempotency-key", "once-and-only-once"),)
            return text_of(
                await all_of(client.respond("Once?", session_id="s-grpc", max_output_tokens=30, metadata=key))
            )

    first, second = await asyncio.gather(*map(ask, doors))
    assert first == second
    assert await worker.metric("infer_total") == before + 1


async def test_a_killed_gateways_answer_resumes_at_the_other(system: System, doors: list[Door]) -> None:
    dying = await door_at(system, 4)
    async with dying.client() as client:
        call = client.respond("Tell me all", session_id="s-killed", max_output_tokens=400)
        seen = await until_text(call)
        dying.service.kill()
        with suppress(aio.AioRpcError):
            seen += await all_of(call)
    last = [message for message in seen if message.WhichOneof("message") == "response_output_text_delta"][-1]
    async with doors[0].client() as client:
        rest = await all_of(client.resume("s-killed", last.response_output_text_delta.cursor))
    assert rest[0].session_created.recovered
    assert text_of(seen) + text_of(rest) == rest[-1].response_done.response.output_text
    assert len(text_of(seen) + text_of(rest)) == 400


async def test_a_draining_gateway_finishes_its_streams(system: System) -> None:
    door = await door_at(system, 5)
    async with door.client() as client:
        call = client.respond("Tell me all", max_output_tokens=200)
        seen = await until_text(call)
        door.service.child.signal(signal.SIGTERM)
        messages = [*seen, *await all_of(call)]
        assert len(messages[-1].response_done.response.output_text) == 200
        assert (await refused(client.respond()))[0] is grpc.StatusCode.UNAVAILABLE
    assert await door.service.ended() == 0


@pytest.fixture(scope="session")
def tools() -> Path:
    """Return the folder of the Go programs that docs/doors.md names."""
    folder = ROOT / ".cache" / "grpc-tools"
    for name, source in TOOLS.items():
        if not (folder / name).exists():
            env = {**os.environ, "GOBIN": str(folder), "PATH": f"{os.environ['PATH']}:/usr/local/go/bin"}
            try:
                subprocess.run(["go", "install", f"github.com/{source}"], env=env, check=True)
            except (OSError, subprocess.CalledProcessError):
                pytest.fail(f"{name} is missing. Type: GOBIN={folder} go install github.com/{source}", pytrace=False)
    return folder


@pytest.mark.long
async def test_the_commands_of_the_doors_page_work(doors: list[Door], tools: Path, tmp_path: Path) -> None:
    """Run the shell lines of docs/doors.md as printed."""
    (block,) = re.findall(r"```shell\n(.*?)```", (ROOT / "docs" / "doors.md").read_text(), re.DOTALL)
    (tmp_path / ".run").mkdir()
    (tmp_path / ".run" / "demo.env").write_text(f"export GRPC_ADDRESS={doors[0].address}\n")
    env = {"PATH": f"{tools}:{os.environ['PATH']}"}
    run = await asyncio.to_thread(
        subprocess.run, ["bash", "-e", "-c", block], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    assert "\nreplyline.v1.Replyline\n" in run.stdout
    assert run.stdout.count('"response_done"') == run.stdout.count('"SOURCE_MODEL"') == 2
    assert "status: SERVING" in run.stderr
