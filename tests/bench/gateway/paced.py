"""Paced deltas that carry their due time, and streaming clients that only record arrival times.

A connection holds one stream at a time and asks again when it has ended, so the number of streams is the number of
active connections.
"""

import asyncio
import time
from array import array
from dataclasses import dataclass, field
from typing import Final

from ops.lab.client.dialogue import Dialogue
from shared.wire.messages import ErrorEvent, ResponseCreate, ResponseDelta, ResponseDone, ServerMessage
from shared.wire.outcome import BY_MODEL

DELTAS: Final = 32
INTERVAL_MS: Final = 20.0
DELTA_CHARS: Final = 60
_DIGITS: Final = 16
_PADDING: Final = "x" * (DELTA_CHARS - _DIGITS)
_US: Final = 1_000_000
_OPENING_TOGETHER: Final = 64


def delta_text(due_s: float) -> str:
    """Sixty characters that begin with the due time in microseconds."""
    return f"{int(due_s * _US):016d}{_PADDING}"


def lateness_ms(text: str, now_s: float) -> list[float]:
    """Return the lateness of each delta in a text: a gateway may have joined several."""
    starts = range(0, len(text) - DELTA_CHARS + 1, DELTA_CHARS)
    return [(now_s - int(text[at : at + _DIGITS]) / _US) * 1_000 for at in starts]


@dataclass(slots=True)
class Tally:
    """What all connections together have seen since `reset`."""

    lateness_ms: "array[float]" = field(default_factory=lambda: array("d"))
    failures: int = 0

    def reset(self) -> None:
        self.lateness_ms = array("d")
        self.failures = 0


class PacedConnection:
    """`active`: it is to stream."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self.dialogue = Dialogue(self._hear, self._lose)
        self._number = 0
        self._deltas = 0
        self._streaming = False
        self.active = False

    def activate(self, *, active: bool) -> None:
        """Stream, one answer after the other; or stop after the one that runs."""
        self.active = active
        if active and not self._streaming:
            self._ask()

    def _ask(self) -> None:
        self._number += 1
        self._deltas = 0
        self._streaming = True
        self.dialogue.send(ResponseCreate(event_id=f"s{self._number}", input="where is my parcel"))

    def _hear(self, message: ServerMessage, now_s: float) -> None:
        match message:
            case ResponseDelta():
                late = lateness_ms(message.delta, now_s)
                self._deltas += len(late)
                self._tally.lateness_ms.extend(late)
            case ResponseDone(response=response):
                whole = response.source in BY_MODEL and response.status == "completed"
                self._ended(failed=not whole or self._deltas != DELTAS)
            case ErrorEvent():
                self._ended(failed=True)

    def _ended(self, *, failed: bool) -> None:
        self._streaming = False
        self._tally.failures += failed
        if self.active:
            self._ask()

    def _lose(self) -> None:
        self._tally.failures += self.active


class Pool:
    """Connections that stay open; some of them stream, beginning with the first."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.tally = Tally()
        self._connections: list[PacedConnection] = []

    @property
    def num_streaming(self) -> int:
        """Connections that are to stream and can."""
        return sum(connection.active and not connection.dialogue.lost for connection in self._connections)

    async def open(self, count: int) -> float:
        """Hold `count` connections, lost ones replaced; return the seconds that opening the missing ones took."""
        start_s = time.monotonic()
        self._connections = [connection for connection in self._connections if not connection.dialogue.lost]
        while (missing := count - len(self._connections)) > 0:
            fresh = [PacedConnection(self.tally) for _ in range(min(_OPENING_TOGETHER, missing))]
            await asyncio.gather(*(connection.dialogue.open(self._url) for connection in fresh))
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
            connection.active = False
            connection.dialogue.close()
