"""Streaming clients that do nothing but take the time of what comes: the gateway bench's load.

A connection holds one stream at a time and asks again when it has ended, so as many streams run as connections are
active. Frames are decoded only as far as the bench needs.
"""

import asyncio
import time
from array import array
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec import Struct

from ops.client.dialogue import SUBPROTOCOL
from ops.client.protocol import ConnectFailed
from ops.client.wire import Wire
from shared.wire.codec import msgpack_encode
from shared.wire.messages import BY_MODEL, Pong, ResponseCreate, SessionStart
from tests.bench.gateway.paced import DELTAS, lateness_ms

_OPENING_TOGETHER: Final = 64
_HELLO_S: Final = 20.0


class _Answer(Struct):
    source: str = ""
    status: str = ""


class _Event(Struct):
    """As much of any event as is read: of most of them the type."""

    type: str
    delta: str = ""
    response: _Answer = msgspec.field(default_factory=_Answer)


_decode = msgspec.msgpack.Decoder(_Event).decode
_START: Final = msgpack_encode(SessionStart())
_PONG: Final = msgpack_encode(Pong())


@dataclass(slots=True)
class Tally:
    """What all connections together have seen since `reset`."""

    lateness_ms: "array[float]" = field(default_factory=lambda: array("d"))
    failures: int = 0

    def reset(self) -> None:
        self.lateness_ms = array("d")
        self.failures = 0


class PacedConnection:
    """`active`: it is to stream; `lost`: it has ended, and streams no more."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._wire: Wire | None = None
        self._hello: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._number = 0
        self._deltas = 0
        self._streaming = False
        self.active = False
        self.lost = False

    async def open(self, url: str) -> None:
        """Raises `ConnectFailed`."""
        self._wire = await Wire.connect(url, subprotocol=SUBPROTOCOL, on_frame=self._on_frame, on_lost=self._on_lost)
        self._wire.send(_START)
        try:
            async with asyncio.timeout(_HELLO_S):
                await self._hello
        except TimeoutError:
            raise ConnectFailed(f"{url} does not answer session.start") from None

    def activate(self, *, active: bool) -> None:
        """Stream, one answer after the other; or stop after the one that runs."""
        self.active = active
        if active and not self._streaming:
            self._ask()

    def close(self) -> None:
        self.active = False
        if self._wire is not None:
            self._wire.close()

    def _ask(self) -> None:
        assert self._wire is not None, "ask before open"
        self._number += 1
        self._deltas = 0
        self._streaming = True
        self._wire.send(msgpack_encode(ResponseCreate(event_id=f"s{self._number}", input="where is my parcel")))

    def _on_frame(self, payload: bytes, now: float) -> None:
        event = _decode(payload)
        match event.type:
            case "response.output_text.delta":
                late = lateness_ms(event.delta, now)
                self._deltas += len(late)
                self._tally.lateness_ms.extend(late)
            case "response.done":
                whole = event.response.source in BY_MODEL and event.response.status == "completed"
                self._ended(failed=not whole or self._deltas != DELTAS)
            case "error":
                self._ended(failed=True)
            case "ping" if self._wire is not None:
                self._wire.send(_PONG)
            case "session.created" if not self._hello.done():
                self._hello.set_result(None)

    def _ended(self, *, failed: bool) -> None:
        self._streaming = False
        self._tally.failures += failed
        if self.active:
            self._ask()

    def _on_lost(self, reason: str) -> None:
        if not self._hello.done():
            self._hello.set_exception(ConnectFailed(reason))
        self.lost = True
        self._tally.failures += self.active


class Pool:
    """Connections that stay open; the first so many of them stream."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.tally = Tally()
        self._connections: list[PacedConnection] = []

    @property
    def num_streaming(self) -> int:
        """Connections that are to stream and can."""
        return sum(connection.active and not connection.lost for connection in self._connections)

    async def open(self, count: int) -> float:
        """Hold `count` connections, lost ones replaced; return the seconds that opening the missing ones took."""
        start_s = time.monotonic()
        self._connections = [connection for connection in self._connections if not connection.lost]
        while (missing := count - len(self._connections)) > 0:
            fresh = [PacedConnection(self.tally) for _ in range(min(_OPENING_TOGETHER, missing))]
            await asyncio.gather(*(connection.open(self._url) for connection in fresh))
            self._connections += fresh
        return time.monotonic() - start_s

    async def stream(self, count: int, *, spread_s: float) -> None:
        """Have `count` streams run; those that begin do so one after the other within `spread_s`."""
        await self.open(count)
        for connection in self._connections[count:]:
            connection.activate(active=False)
        fresh = [connection for connection in self._connections[:count] if not connection.active]
        for number, connection in enumerate(fresh):
            connection.activate(active=True)
            if number % 8 == 0:
                await asyncio.sleep(spread_s * 8 / len(fresh))

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
