"""The gateway's side of a socket: a client that does not read is noticed immediately, and a hello being checked is not
late.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs
from websockets.protocol import State
from websockets.server import ServerProtocol

from gateway.destination.memory_watch import MIB, MemoryWatch
from gateway.frontends import websocket
from gateway.frontends.websocket import WebSocketConnection, WebSocketFrontend
from gateway.session.effects import CloseCode
from shared.settings.gateway import GatewaySettings
from shared.wire.codec import GATEWAY_CODECS
from shared.wire.messages import Ping, SessionClosing
from tests.support.fakes.gateways import quiet
from tests.support.fakes.sessions import new

JSON = GATEWAY_CODECS["chat.v1.json"]
SETTINGS = GatewaySettings(buffer_close_bytes=4_096, slow_consumer_s=5)


class Transport:
    """Holds what its client has not taken."""

    def __init__(self) -> None:
        self.held_bytes = 0

    def write(self, data: bytes) -> None:
        self.held_bytes += len(data)

    def get_write_buffer_size(self) -> int:
        return self.held_bytes


class Socket:
    """The client sends this, and then nothing more."""

    def __init__(self, *said: str) -> None:
        self.protocol = ServerProtocol(state=State.OPEN)
        self.transport = Transport()
        self.closes: list[int] = []
        self._said = said

    async def __aiter__(self) -> AsyncIterator[str]:
        for text in self._said:
            yield text

    async def close(self, code: int, reason: str) -> None:
        self.closes.append(code)


def connected(socket: Any, congested: dict[WebSocketConnection, None]) -> WebSocketConnection:
    return WebSocketConnection(socket, JSON, new(), merge_bytes=SETTINGS.buffer_merge_bytes, congested=congested)


def frontend(**given: Any) -> WebSocketFrontend:
    nothing: Any = None
    rest: dict[str, Any] = dict.fromkeys(("gateway", "session_limits", "tenant", "gate", "files"), nothing)
    return WebSocketFrontend(**({"settings": SETTINGS, "memory": MemoryWatch()} | rest | given))


def goodbye(size: int) -> SessionClosing:
    return SessionClosing(reason="x" * size, reconnect_after_ms=1)


def test_a_client_that_does_not_read_a_large_message_is_congested_by_it() -> None:
    socket, congested = Socket(), dict[WebSocketConnection, None]()
    connection = connected(socket, congested)
    connection.put(goodbye(10))
    connection.flush()
    assert not congested
    connection.put(goodbye(2_000))
    connection.flush()
    assert list(congested) == [connection]
    socket.transport.held_bytes = 1_024
    connection.flush()
    assert not congested


def test_waiting_messages_are_written_once_the_client_has_read_the_rest() -> None:
    socket, congested = Socket(), dict[WebSocketConnection, None]()
    connection = connected(socket, congested)
    for _ in range(2):
        connection.put(goodbye(2_000))
        connection.flush()
    assert socket.transport.held_bytes < 3_000
    socket.transport.held_bytes = 0
    connection.flush()
    assert socket.transport.held_bytes > 2_000
    assert list(congested) == [connection]


@pytest.mark.parametrize("seconds", [0.0, 6.0])
def test_a_client_that_reads_nothing_of_one_message_is_too_slow_in_time(seconds: float) -> None:
    front = frontend()
    connection = connected(Socket(), front._congested)
    connection.put(goodbye(10_000))
    connection.flush()
    assert not front._is_too_slow(connection, 100.0)
    connection.flush()
    assert front._is_too_slow(connection, 100.0 + seconds) is (seconds > 5)


async def test_with_little_memory_a_client_that_reads_nothing_is_closed_without_a_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(websocket, "_RELIEVE_S", 0)
    memory = MemoryWatch(MIB)
    memory.update(MIB)
    front = frontend(memory=memory)
    socket = Socket()
    connection = connected(socket, front._congested)
    connection.put(goodbye(2_000))
    connection.flush()
    relieving = asyncio.create_task(front.flush_slow())
    await quiet()
    relieving.cancel()
    assert socket.closes == [CloseCode.SLOW_CONSUMER]


def test_a_client_that_reads_is_never_congested() -> None:
    socket, congested = Socket(), dict[WebSocketConnection, None]()
    connection = connected(socket, congested)
    for _ in range(100):
        connection.put(Ping())
        connection.flush()
        socket.transport.held_bytes = 0
    assert not congested


async def test_a_fault_in_one_clients_round_closes_that_client_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(websocket, "_SWEEP_S", 0.0)
    ticked: list[Any] = []

    class Gateway:
        async def tick(self, connection: WebSocketConnection) -> None:
            if connection is bad:
                raise RuntimeError("a fault of our own")
            ticked.append(connection)

    sockets = [Socket(), Socket(), Socket()]
    connections = [connected(socket, {}) for socket in sockets]
    bad = connections[1]
    front_end = frontend(gateway=Gateway(), _connections=dict.fromkeys(connections))
    sweeping = asyncio.create_task(front_end.sweep())
    with capture_logs():
        await quiet()
    sweeping.cancel()
    assert set(ticked) == {connections[0], connections[2]}
    assert [socket.closes for socket in sockets] == [[], [CloseCode.INTERNAL], []]


async def test_unwritten_data_does_not_prevent_a_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unsendable(*_: object, **__: object) -> None:
        raise RuntimeError("a fault of our own")

    monkeypatch.setattr(websocket, "send_frames", unsendable)
    socket = Socket()
    connection = connected(socket, {})
    connection.put(Ping())
    with capture_logs():
        connection.close(CloseCode.INTERNAL, "internal error")
        await quiet()
    assert socket.closes == [CloseCode.INTERNAL]
