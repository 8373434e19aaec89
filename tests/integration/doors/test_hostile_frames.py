"""Connections that break every rule cost a gateway nothing: no fault, no log line, no other client's answer."""

import asyncio
import json
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from itertools import cycle, islice
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import msgpack
import psutil
import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from gateway.destination.memory_watch import MemoryWatch
from gateway.frontends.static import StaticFiles
from gateway.frontends.websocket import WebSocketFrontend
from gateway.serving.gateway import Gateway
from gateway.session.connection import Connection
from gateway.session.effects import CloseCode
from gateway.session.session_limits import SessionLimits
from shared.settings.gateway import GatewaySettings
from shared.telemetry import metrics
from shared.wire.messages import ClientMessage
from tests.support import wire
from tests.support.hostile.connections import HELLO, JSON, KINDS, Hostile, hostile_connections
from tests.support.reliability import Reliability
from tests.support.rfc6455 import Opcode, frame, frames_of, handshake
from tests.support.shared_system import STANDARD
from tests.support.system import Service, System, eventually
from tests.support.wire import Answer, Bystander, Client

WHOLE = 2_000
A_SECOND = 50
NEIGHBOURS = 4
BEFORE = 100  # answers of each neighbour
ENDED_S = 10.0
MARK = b"still there?"
MIB = 1024 * 1024

# An HTTP server's answers to a bad request; an internal fault is 500.
STATUSES = {101, 200, 400, 404, 405, 414, 426, 431, 505}
# A protocol error, bad text, too big, no hello, and a client's own close echoed. A fault is 1011 or 4004.
CLOSES = {1000, 1002, 1007, 1009, 4502}
EVENTS = {
    "session.created",
    "session.deleted",
    "response.created",
    "response.output_text.delta",
    "response.done",
    "error",
}


pytestmark = STANDARD


@dataclass(slots=True)
class Heard:
    """The bytes that the gateway sent on one connection."""

    data: bytearray

    def check(self, hostile: Hostile) -> None:
        """Check that the gateway reports no internal fault, sends only frames and events of the protocol, and answers
        a ping unless a fault came before.
        """
        head, _, stream = bytes(self.data).partition(b"\r\n\r\n")
        if head:
            status = int(head.split()[1])
            assert status in STATUSES, head
            if status != 101:
                return
        frames = frames_of(stream)
        closes = [_code(payload) for opcode, payload in frames if opcode == Opcode.CLOSE]
        assert len(closes) <= 1
        assert set(closes) <= CLOSES, closes
        for opcode, payload in frames:
            if opcode in {Opcode.TEXT, Opcode.BINARY}:
                event = json.loads(payload) if opcode == Opcode.TEXT else msgpack.unpackb(payload)
                assert event["type"] in EVENTS
                assert event.get("error", {}).get("type") != "server_error", event
        if hostile.served and 4502 not in closes:
            assert (Opcode.PONG, MARK) in frames


def _code(payload: bytes) -> int:
    """1000 if the client gave no code that is echoed."""
    code: int = struct.unpack_from(">H", payload)[0] if payload else 1000
    return code


async def connect(gateway: Service, hostile: Hostile) -> Heard:
    """Send the hostile bytes, then leave; the gateway must close the connection."""
    host, _, port = gateway.address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    heard = Heard(bytearray())
    with suppress(ConnectionError):  # the gateway may have closed during it
        if hostile.subprotocol is not None:
            writer.write(handshake(hostile.subprotocol))
            heard.data += await reader.readuntil(b"\r\n\r\n")
        for piece in hostile.pieces:
            writer.write(piece)
            await writer.drain()
        if hostile.resets:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            return heard
        if hostile.served:
            writer.write(frame(Opcode.PING, MARK) + frame(Opcode.CLOSE, struct.pack(">H", 1000)))
        writer.write_eof()
        async with asyncio.timeout(ENDED_S):
            while data := await reader.read(65_536):
                heard.data += data
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
    return heard


async def attack(gateway: Service, connections: list[Hostile]) -> Counter[str]:
    """Open loop: start this many each second without waiting for earlier ones; return how many of each kind."""

    async def one(number: int, hostile: Hostile) -> None:
        await asyncio.sleep(number / A_SECOND)
        try:
            (await connect(gateway, hostile)).check(hostile)
        except (AssertionError, TimeoutError, ValueError) as error:
            sent = b"|".join(hostile.pieces)[:500]
            raise AssertionError(f"connection {number}, {hostile.kind}: {error!r}; sent: {sent!r}") from error

    async with asyncio.TaskGroup() as group:
        for number, hostile in enumerate(connections):
            group.create_task(one(number, hostile))
    return Counter(hostile.kind for hostile in connections)


def p99_ms(answers: list[Answer]) -> float:
    took = sorted(answer.took_s for answer in answers)
    return took[-(len(took) // 100) - 1] * 1_000


def faults(system: System) -> list[dict[str, Any]]:
    """Return the log lines of any service that report an internal fault."""
    return [
        line
        for service in system.services
        for line in service.logged()
        if "exception" in line or line["event"] == "raw" or line.get("level") in {"error", "critical"}
    ]


@pytest.mark.promise(3)
@pytest.mark.long
async def test_neighbours_get_their_answers_next_to_hostile_connections(
    system: System, gateway: Service, reliability: Reliability
) -> None:
    """All answers are complete and right (`Bystander` checks), and in the full run hardly later than before."""
    tried = reliability.amount(WHOLE, part=100)
    connections = list(islice(hostile_connections(Random(1)), tried))
    faults_before = len(faults(system)), await gateway.metric("replyline_faults_total")
    async with AsyncExitStack() as stack:
        forms = islice(cycle((wire.JSON, wire.MSGPACK)), NEIGHBOURS)
        beside = [await stack.enter_async_context(Bystander.beside(gateway.ws, form)) for form in forms]
        answers_before = BEFORE if reliability.whole else 1
        await eventually(lambda: all(len(other.answers) >= answers_before for other in beside), limit_s=60)
        before = [list(other.answers) for other in beside]

        kinds = await attack(gateway, connections)

        during = [other.answers[len(earlier) :] for other, earlier in zip(beside, before, strict=True)]
    assert kinds.keys() == KINDS.keys()
    assert all(during)
    assert (len(faults(system)), await gateway.metric("replyline_faults_total")) == faults_before, faults(system)
    was, became = (p99_ms([answer for of_one in answers for answer in of_one]) for answers in (before, during))
    reliability.found(
        figure=(
            f"{tried} tried, 0 faults; {sum(map(len, during))} answers of {NEIGHBOURS} neighbours meanwhile, "
            f"p99 {became:.0f} ms, before {was:.0f} ms"
        ),
        target=f"{WHOLE} tried, 0 faults; neighbours' p99 at most twice of before",
        holds=not reliability.whole or became <= 2 * was,
    )


@pytest_asyncio.fixture
async def deaf(gateway: Service) -> AsyncIterator[socket.socket]:
    """Open a connection that sends `session.start` and then never reads."""
    host, _, port = gateway.address.partition(":")
    loop = asyncio.get_running_loop()
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        sock.setblocking(False)
        await loop.sock_connect(sock, (host, int(port)))
        await loop.sock_sendall(sock, handshake(JSON) + frame(Opcode.TEXT, HELLO[JSON]))
        assert b"101" in await loop.sock_recv(sock, 1_000)
        yield sock


async def test_a_client_that_reads_no_pongs_is_not_read(gateway: Service, deaf: socket.socket) -> None:
    """Its pings stop at the sockets' buffers, and memory does not grow."""
    loop, pings, sent = asyncio.get_running_loop(), frame(Opcode.PING, b"x" * 125) * 1_000, 0
    process = psutil.Process(gateway.child.process.pid)
    before = process.memory_info().rss
    with suppress(TimeoutError, ConnectionError):
        while sent < 64 * MIB:
            async with asyncio.timeout(2):
                await loop.sock_sendall(deaf, pings)
            sent += len(pings)
    assert sent < 64 * MIB
    assert process.memory_info().rss - before < 16 * MIB
    async with Client.connect(gateway.ws) as client:
        assert (await client.ask("Where is my order?", max_output_tokens=2)).text


class Faulty:
    """A gateway with an internal fault: any message raises."""

    def connect(self, connection: Connection) -> bool:
        return True

    def disconnect(self, connection: Connection) -> None: ...

    async def receive(self, connection: Connection, message: ClientMessage) -> None:
        raise RuntimeError("a fault of our own")


async def test_an_internal_fault_is_logged_and_counted_and_the_client_reconnects() -> None:
    """The close code is 4004, not the library's 1011: an unreported fault is never fixed."""
    front_end = WebSocketFrontend(
        gateway=cast("Gateway", Faulty()),
        settings=GatewaySettings(port=0),
        session_limits=cast("SessionLimits", SimpleNamespace(messages_per_minute=100)),
        tenant="demo",
        gate=None,
        memory=MemoryWatch(),
        files=StaticFiles(),
    )
    count = metrics.faults.labels("connection")._value
    before = count.get()
    server = await front_end.listen()
    port = server.sockets[0].getsockname()[1]
    with capture_logs() as lines:
        async with Client.connect(f"ws://127.0.0.1:{port}/ws", start=False) as client:
            await client.send({"type": "session.start"})
            assert await client.closed() == CloseCode.INTERNAL
        server.close()
        await server.wait_closed()
    assert [line["event"] for line in lines if line["log_level"] == "error"] == ["fault"]
    assert count.get() == before + 1
