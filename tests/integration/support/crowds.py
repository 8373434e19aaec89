"""Many clients in one event loop, each as cheap as its socket: some ask, some do not read, some connect and never start
a session.
"""

import asyncio
import json
import random
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from websockets.client import ClientProtocol
from websockets.protocol import State
from websockets.uri import parse_uri

from ops.lab.client.dialogue import CONNECTION_LOST, Dialogue
from shared.client.telling import ConnectFailed
from shared.wire.messages import (
    ErrorEvent,
    ResponseCreate,
    ResponseCreated,
    ResponseDelta,
    ResponseDone,
    ServerMessage,
    SessionClosing,
    SessionStart,
)
from tests.support.system import Service

_OPENING_TOGETHER: Final = 64
# As in gateway/widget/replyline-client.js, in the first minute: full jitter below a ceiling that doubles.
_BACKOFF_BASE_S: Final = 0.5
_BACKOFF_CAP_S: Final = 5.0
_PATIENCE_S: Final = 30.0
_ESTABLISHED: Final = "01"  # in /proc/net/tcp


# --- clients


@dataclass(frozen=True, slots=True)
class Heard:
    """The result of a question. `whole`: its deltas came in order and form its text. `error` instead of an answer."""

    took_s: float
    source: str | None = None
    whole: bool = False
    error: str | None = None
    response_id: str | None = None


@dataclass(slots=True)
class _Question:
    asked_s: float
    heard: asyncio.Future[Heard]
    text: str = ""
    in_order: bool = True


class Visitor:
    """One connection. `lost_s` is when it ended, by the monotonic clock; None while it is open."""

    def __init__(self) -> None:
        self._dialogue = Dialogue(self._hear, self._lose)
        self._open: dict[str, _Question] = {}
        self._events: dict[str, str] = {}
        self._number = 0
        self._told_to_come_after_s: float | None = None
        self._ended = asyncio.Event()
        self.lost_s: float | None = None

    async def open(self, url: str, *, token: str | None = None) -> None:
        """Raises `ConnectFailed`."""
        await self._dialogue.open(url, SessionStart(token=token))

    def close(self) -> None:
        self._dialogue.close()

    async def ask(self, text: str, **fields: Any) -> Heard:
        self._number += 1
        event_id = f"e{self._number}"
        question = _Question(time.monotonic(), asyncio.get_running_loop().create_future())
        self._open[event_id] = question
        self._dialogue.send(ResponseCreate(event_id=event_id, input=text, **fields))
        return await question.heard

    async def come_back(self, url: str, rng: random.Random) -> float:
        """Reconnect after the connection is lost, as the protocol asks a client to; return when, by the monotonic
        clock.
        """
        await self._ended.wait()
        wait_s, ceiling_s = self._told_to_come_after_s, _BACKOFF_BASE_S
        while True:
            await asyncio.sleep(rng.uniform(0, ceiling_s) if wait_s is None else wait_s)
            again = Visitor()
            try:
                await again.open(url)
            except ConnectFailed:
                wait_s = None
                ceiling_s = min(2 * ceiling_s, _BACKOFF_CAP_S)
                continue
            back_s = time.monotonic()
            again.close()
            return back_s

    def _hear(self, message: ServerMessage, now_s: float) -> None:
        match message:
            case ResponseCreated():
                self._events[message.response_id] = message.event_id
            case ResponseDelta():
                question = self._open[self._events[message.response_id]]
                question.in_order = question.in_order and message.offset == len(question.text)
                question.text += message.delta
            case ResponseDone():
                question = self._open.pop(self._events.pop(message.response.id))
                whole = question.in_order and question.text == message.response.output_text
                response = message.response
                heard = Heard(now_s - question.asked_s, response.source, whole, response_id=response.id)
                question.heard.set_result(heard)
            case ErrorEvent():
                question = self._open.pop(message.event_id or "")
                question.heard.set_result(Heard(now_s - question.asked_s, error=message.error.code))
            case SessionClosing():
                self._told_to_come_after_s = message.reconnect_after_ms / 1_000

    def _lose(self) -> None:
        self.lost_s = time.monotonic()
        self._ended.set()
        for question in self._open.values():
            question.heard.set_result(Heard(self.lost_s - question.asked_s, error=CONNECTION_LOST))
        self._open.clear()


@dataclass(slots=True)
class Crowd:
    """Visitors of one gateway."""

    url: str
    visitors: list[Visitor] = field(default_factory=list)

    async def grow(self, count: int) -> None:
        """Grow to this many visitors. Raises `ConnectFailed`."""
        while (missing := count - len(self.visitors)) > 0:
            fresh = [Visitor() for _ in range(min(_OPENING_TOGETHER, missing))]
            self.visitors += fresh
            await asyncio.gather(*(visitor.open(self.url) for visitor in fresh))

    @property
    def num_lost(self) -> int:
        return sum(visitor.lost_s is not None for visitor in self.visitors)

    async def ask_each(self, text: str, *, within_s: float, rng: random.Random) -> list[Heard]:
        """Ask one question from every visitor, each at its own time."""

        async def later(visitor: Visitor, after_s: float) -> Heard:
            await asyncio.sleep(after_s)
            return await visitor.ask(text)

        return await asyncio.gather(*(later(visitor, rng.uniform(0, within_s)) for visitor in self.visitors))

    def close(self) -> None:
        for visitor in self.visitors:
            visitor.close()


@asynccontextmanager
async def crowd(service: Service, count: int) -> AsyncIterator[Crowd]:
    people = Crowd(service.ws)
    try:
        await people.grow(count)
        yield people
    finally:
        people.close()


# --- a client that does not read


async def small_socket(service: Service) -> socket.socket:
    """Return a connection with small buffers, so that the gateway notices immediately that the client does not read."""
    host, _, port = service.address.partition(":")
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, (host, int(port)))
    return sock


class DeafClient:
    """Completes the handshake and reads nothing after it."""

    def __init__(self, sock: socket.socket, protocol: ClientProtocol) -> None:
        self._sock = sock
        self._protocol = protocol

    @classmethod
    async def connect(cls, service: Service) -> "DeafClient":
        loop, client = (
            asyncio.get_running_loop(),
            cls(await small_socket(service), ClientProtocol(parse_uri(service.ws))),
        )
        client._protocol.send_request(client._protocol.connect())
        await client._flush()
        while client._protocol.state is not State.OPEN:
            client._protocol.receive_data(await loop.sock_recv(client._sock, 1_024))
        await client.send(type="session.start")
        return client

    async def send(self, **message: Any) -> None:
        self._protocol.send_text(json.dumps(message).encode())
        await self._flush()

    @property
    def port(self) -> int:
        """Its own port."""
        return int(self._sock.getsockname()[1])

    async def _flush(self) -> None:
        await asyncio.get_running_loop().sock_sendall(self._sock, b"".join(self._protocol.data_to_send()))

    def close(self) -> None:
        self._sock.close()


def ports_held(service: Service) -> set[int]:
    """Return the client ports of connections that the service still has. A connection that it closed while the client
    did not read belongs to the kernel alone; the client does not learn of it.
    """
    own = f":{int(service.address.rpartition(':')[2]):04X}"
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return {
        int(remote[-4:], 16) for _, local, remote, state, *_ in rows if local.endswith(own) and state == _ESTABLISHED
    }


# --- clients that connect and never start a session

Feed = Callable[[asyncio.StreamWriter], Awaitable[None]]
UPGRADE: Final = (
    b"GET /ws HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
CLIENT_HELLO: Final = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(128, 256)) * 4


async def say_nothing(writer: asyncio.StreamWriter) -> None:
    """Open a TCP connection only."""


async def speak_tls(writer: asyncio.StreamWriter) -> None:
    writer.write(CLIENT_HELLO)


async def ask_half(writer: asyncio.StreamWriter) -> None:
    writer.write(UPGRADE[: len(UPGRADE) // 2])


async def upgrade_only(writer: asyncio.StreamWriter) -> None:
    """Upgrade without `session.start`."""
    writer.write(UPGRADE)


async def drip(writer: asyncio.StreamWriter) -> None:
    """Send one byte of the request's head a second."""
    for at in range(len(UPGRADE)):
        writer.write(UPGRADE[at : at + 1])
        await asyncio.sleep(1)


KNOCKS: Final[tuple[Feed, ...]] = (say_nothing, speak_tls, ask_half, upgrade_only, drip)


async def knock(service: Service, feed: Feed) -> float:
    """Return the seconds from the connection to its close by the gateway."""
    host, _, port = service.address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    began = time.monotonic()
    feeding = asyncio.ensure_future(feed(writer))
    try:
        with suppress(ConnectionError):
            async with asyncio.timeout(_PATIENCE_S):
                await reader.read(-1)
        return time.monotonic() - began
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
