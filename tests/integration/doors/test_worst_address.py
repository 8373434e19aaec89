"""One address misbehaves at each door: its connection is closed, it costs little memory, and another address is
answered.

A behaviour is bytes that begin a connection, and bytes that are then sent for as long as the gateway accepts them.
"""

import asyncio
import json
import socket
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import pytest
from grpc import aio

from gateway.doors.grpc.replyline.v1 import replyline_pb2 as v1
from ops.measure.usage import rss_bytes
from ops.stack.processes import free_port
from tests.support.rfc6455 import Opcode, frame, handshake
from tests.support.system import Service, eventually
from tests.support.wire import Client

ABUSER, PROXY = "127.0.0.7", "127.0.0.1"
QUESTION: Final = "How do I return an item?"
GROWTH_BYTES: Final = 32 * 1_048_576
# The promise of the system under test, with a margin for a machine that is full of other tests.
ANSWERED_S: Final = 10.0
ENDED_S: Final = 40.0
HTTP, GRPC = free_port(), free_port()

pytestmark = pytest.mark.system(
    gateways=({"gateway__http_port": HTTP, "gateway__grpc_port": GRPC},),
    worker__fake_decode_ms_per_step=1,
    gateway__max_connections=200,
    gateway__hello_timeout_s=1,
    gateway__slow_consumer_s=1,
    gateway__heartbeat_s=1.5,
    quotas__address_per_minute=100_000,
)


@dataclass(frozen=True, slots=True)
class Door:
    """A door's port, and a path of it."""

    name: str
    path: str
    post: str = "/"

    def port(self, gateway: Service, worker: Service) -> int:
        of_service = {"websocket": gateway.address, "operators": gateway.operators, "worker": worker.operators}
        found = of_service.get(self.name, "")
        return GRPC if self.name == "grpc" else int(found.rpartition(":")[2]) if found else HTTP


DOORS: Final = (
    Door("websocket", "/ws"),
    Door("openai", "/v1/models", "/v1/chat/completions"),
    Door("ai_sdk", "/ai-sdk/chat", "/ai-sdk/chat"),
    Door("edge", "/edge/faq", "/edge/history"),
    Door("chatwoot", "/channels/chatwoot", "/channels/chatwoot"),
    Door("grpc", "/replyline.v1.Replyline/Respond"),
    Door("operators", "/health"),
    Door("worker", "/health"),
)
SOCKETS: Final = [door for door in DOORS if door.name in {"websocket", "ai_sdk"}]


@dataclass(frozen=True, slots=True)
class Behaviour:
    """`begun` is sent first, then `rest` repeatedly, every `pause_s`; `%s` is the path."""

    begun: bytes = b""
    rest: bytes = b""
    pause_s: float = 0.0
    connections: int = 60


GET: Final = b"GET %s HTTP/1.1\r\nHost: x\r\n"
UPGRADE: Final = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
CHUNKED: Final = b"POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
WORST: Final = {
    "idle connections": Behaviour(connections=300),
    "slow headers": Behaviour(GET, b"x", pause_s=0.1),
    "a slow path": Behaviour(b"GET /", b"x", pause_s=0.1),
    "endless headers": Behaviour(GET, b"".join(b"x-%d: y\r\n" % number for number in range(1_000)), connections=4),
    "an endless header": Behaviour(GET + b"x: ", b"y" * 60_000, connections=4),
    "an endless path": Behaviour(b"GET /", b"y" * 60_000, connections=4),
    "a silent upgrade": Behaviour(GET + UPGRADE + b"x: " + b"y" * 9_000 + b"\r\n\r\n"),
    "an upgrade of many lines": Behaviour(GET + UPGRADE + b"a: b\r\n" * 140 + b"\r\n"),
    "half an upgrade": Behaviour(GET + UPGRADE),
    "keep-alive dribble": Behaviour(GET + b"\r\n", b"G", pause_s=0.1),
    "an endless body": Behaviour(CHUNKED, b"8000\r\n" + b"y" * 32_768 + b"\r\n", connections=4),
    "a slow body": Behaviour(CHUNKED, b"1\r\ny\r\n", pause_s=0.1),
    "endless trailers": Behaviour(CHUNKED + b"0\r\n", b"a: b\r\n" * 5_000, connections=4),
    "requests without reading": Behaviour(b"", (GET + b"\r\n") * 200, connections=2),
    "an HTTP/2 preface": Behaviour(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\0\0\0\4\0\0\0\0\0" * 1_000, connections=4),
}
HELLO: Final = {"websocket": frame(Opcode.TEXT, b'{"type":"session.start"}'), "ai_sdk": b""}
FRAMES: Final = {
    "pings": frame(Opcode.PING, b"x" * 125),
    "empty pings": frame(Opcode.PING),
    "pongs": frame(Opcode.PONG),
    "fragments": frame(Opcode.CONTINUATION, fin=False),
    "the protocol's pongs": frame(Opcode.TEXT, b'{"type":"pong"}'),
    "aborts": frame(Opcode.TEXT, b'{"type":"abort","requestId":"x"}'),
    "malformed messages": frame(Opcode.TEXT, b"{}"),
    "messages of no known type": frame(Opcode.TEXT, b'{"type":"what"}'),
    "binary messages": frame(Opcode.BINARY, b"\0"),
    "cancels": frame(Opcode.TEXT, b'{"type":"response.cancel","response_id":"none"}'),
}


@contextmanager
def grown(*services: Service) -> Iterator[list[int]]:
    """Return the largest growth of any of these services after it."""
    before = [rss_bytes(service.child.process.pid) for service in services]
    most = [0]

    async def watch() -> None:
        while True:
            now = [rss_bytes(service.child.process.pid) for service in services]
            most.append(max(after - was for after, was in zip(now, before, strict=True)))
            await asyncio.sleep(0.05)

    watching = asyncio.create_task(watch())
    try:
        yield most
    finally:
        watching.cancel()


async def abuse(port: int, behaviour: Behaviour, path: str, here: str) -> None:
    """Hold one connection until it is closed."""
    with suppress(ConnectionError):
        made = socket.socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        made.setblocking(False)
        made.bind((here, 0))
        await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=made, limit=1_024)
        try:
            writer.write(behaviour.begun.replace(b"%s", path.encode()))
            while behaviour.rest and not reader.at_eof():
                writer.write(behaviour.rest.replace(b"%s", path.encode()))
                await writer.drain()
                await asyncio.sleep(behaviour.pause_s)
                if behaviour.pause_s:  # the answer
                    with suppress(TimeoutError):
                        async with asyncio.timeout(0.01):
                            await reader.read(65_536)
            while await reader.read(65_536):
                pass
        finally:
            writer.transport.abort()


@asynccontextmanager
async def abused(port: int, behaviour: Behaviour, path: str, here: str = ABUSER) -> AsyncIterator[None]:
    """Run it until each of the connections has been closed."""
    holding = [asyncio.create_task(abuse(port, behaviour, path, here)) for _ in range(behaviour.connections)]
    await asyncio.sleep(0.5)
    yield
    async with asyncio.timeout(ENDED_S):
        await asyncio.gather(*holding)


def post(path: str, body: dict[str, Any]) -> bytes:
    headers = {"content-type": "application/json", "x-forwarded-for": "192.0.2.8"}
    request = urllib.request.Request(f"http://127.0.0.1:{HTTP}{path}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=ANSWERED_S) as page:
        return bytes(page.read())


async def respond() -> str:
    async with aio.insecure_channel(f"127.0.0.1:{GRPC}", options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        ask = channel.unary_stream("/replyline.v1.Replyline/Respond", response_deserializer=v1.ServerMessage.FromString)
        request = v1.RespondRequest(input=QUESTION, max_output_tokens=2).SerializeToString()
        metadata = (("x-forwarded-for", "192.0.2.8"),)
        messages = [message async for message in ask(request, metadata=metadata, timeout=ANSWERED_S)]
        return str(messages[-1].WhichOneof("message"))


async def others_are_answered(gateway: Service, worker: Service) -> None:
    """Check that others are answered at every door within the promise."""
    async with asyncio.timeout(ANSWERED_S):
        async with Client.connect(gateway.ws) as client:
            assert (await client.ask(QUESTION, max_output_tokens=2)).outcome[0] in {"completed", "incomplete"}
        told = {"model": "replyline", "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 2}
        assert b"choices" in await asyncio.to_thread(post, "/v1/chat/completions", told)
        chat = {"id": "chat-1", "messages": [{"role": "user", "parts": [{"type": "text", "text": QUESTION}]}]}
        assert b"finish" in await asyncio.to_thread(post, "/ai-sdk/chat", chat)
        assert await respond() == "response_done"
        assert await gateway.status_of("/ready") == 200
        assert await worker.status_of("/ready") == 200


@pytest.mark.parametrize("behaviour", WORST.values(), ids=WORST)
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
async def test_an_abusive_address_costs_others_nothing(
    gateway: Service, worker: Service, door: Door, behaviour: Behaviour
) -> None:
    path = door.post if behaviour.begun.startswith(b"POST") else door.path
    with grown(gateway, worker) as growth:
        async with abused(door.port(gateway, worker), behaviour, path):
            await others_are_answered(gateway, worker)
    assert max(growth) <= GROWTH_BYTES


@pytest.mark.parametrize("frames", FRAMES.values(), ids=FRAMES)
@pytest.mark.parametrize("door", SOCKETS, ids=lambda door: door.name)
async def test_endless_frames_cost_others_nothing(gateway: Service, worker: Service, door: Door, frames: bytes) -> None:
    begun = handshake(None, path=door.path) + HELLO[door.name]
    if frames == FRAMES["fragments"]:
        begun += frame(Opcode.TEXT, fin=False)
    with grown(gateway) as growth:
        async with abused(door.port(gateway, worker), Behaviour(begun, frames * 500, connections=4), door.path):
            await others_are_answered(gateway, worker)
    assert max(growth) <= GROWTH_BYTES


LONG: Final = QUESTION * 2_500
CHAT: Final = {"model": "replyline", "messages": [{"role": "user", "content": LONG}]}
LONG_QUESTIONS: Final = {
    "openai": ("/v1/chat/completions", CHAT),
    "responses": ("/v1/responses", {"model": "replyline", "input": LONG}),
}


@pytest.mark.parametrize(("path", "body"), LONG_QUESTIONS.values(), ids=LONG_QUESTIONS)
async def test_endless_long_questions_cost_little_memory(
    gateway: Service, worker: Service, path: str, body: dict[str, Any]
) -> None:
    data = json.dumps(body).encode()
    asked = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
    questions = Behaviour(rest=asked + f"{len(data)}\r\n\r\n".encode() + data)
    with grown(gateway, worker) as growth:
        asking = [asyncio.create_task(abuse(HTTP, questions, path, ABUSER)) for _ in range(10)]
        for _ in range(5):
            await others_are_answered(gateway, worker)
        for each in asking:
            each.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
    assert max(growth) <= GROWTH_BYTES


@pytest.mark.parametrize("door", DOORS[:5], ids=lambda door: door.name)
async def test_a_client_of_a_trusted_proxy_is_counted_by_its_own_address(
    gateway: Service, worker: Service, door: Door
) -> None:
    """Kept connections and open sockets alike."""
    named = b"X-Forwarded-For: 198.51.100.7\r\n"
    held = GET + named + b"\r\n"
    if door in SOCKETS:
        held = handshake(None, path=door.path, X_Forwarded_For="198.51.100.7") + HELLO[door.name]
    holding = [
        asyncio.create_task(abuse(door.port(gateway, worker), Behaviour(held), door.path, PROXY)) for _ in range(100)
    ]
    await eventually(lambda: sum(not each.done() for each in holding) <= 10)
    await others_are_answered(gateway, worker)
    for each in holding:
        each.cancel()
    await asyncio.gather(*holding, return_exceptions=True)


HELLO_BY_GRPC: Final = v1.ClientMessage(session_start=v1.SessionStart()).SerializeToString()
CANCEL: Final = v1.ClientMessage(response_cancel=v1.ResponseCancel(response_id="none")).SerializeToString()
PROBES: Final = {
    "watches": ("/grpc.health.v1.Health/Watch", [b""]),
    "checks without a message": ("/grpc.health.v1.Health/Check", []),
    "reflection": ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", []),
    "questions without a message": ("/replyline.v1.Replyline/Respond", []),
    "chats without a message": ("/replyline.v1.Replyline/Chat", []),
    "chats of refused messages": ("/replyline.v1.Replyline/Chat", [HELLO_BY_GRPC, *[b"\xff"] * 10_000]),
    "chats of cancels": ("/replyline.v1.Replyline/Chat", [HELLO_BY_GRPC, *[CANCEL] * 10_000]),
}


@pytest.mark.parametrize(("method", "messages"), PROBES.values(), ids=PROBES)
async def test_endless_grpc_calls_cost_others_nothing(
    gateway: Service, worker: Service, method: str, messages: Sequence[bytes]
) -> None:
    """A health check and reflection last for as long as a client likes: a client holds sixteen at most."""

    async def call(channel: aio.Channel) -> None:
        made = channel.stream_stream(method)(metadata=(("x-forwarded-for", "198.51.100.7"),))
        with suppress(aio.AioRpcError, asyncio.InvalidStateError):
            for message in messages:
                await made.write(message)
            while await made.read() is not aio.EOF:
                pass

    with grown(gateway) as growth:
        async with aio.insecure_channel(f"127.0.0.1:{GRPC}") as channel:
            calls = [asyncio.create_task(call(channel)) for _ in range(300)]
            await asyncio.sleep(0.5)
            await others_are_answered(gateway, worker)
            await eventually(lambda: sum(not each.done() for each in calls) <= 16, limit_s=ENDED_S)
            for each in calls:
                each.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
    assert max(growth) <= GROWTH_BYTES
