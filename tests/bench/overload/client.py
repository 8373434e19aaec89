"""Clients that look for what must not happen: an answer without an end, one with two, one that is too late.

As in the load bench everything is driven by callbacks of the event loop; here a response is remembered after its end,
so that a second one is seen, and `response.created` is asked whether the workers got the request.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ops.client.dialogue import CONNECTION_LOST, Dialogue
from ops.measure.pacer import Pacer
from shared.wire.messages import (
    ErrorEvent,
    Limits,
    ResponseCreate,
    ResponseCreated,
    ResponseDelta,
    ResponseDone,
    ServerMessage,
    SessionCreated,
)
from tests.bench.overload.outcome import Asked

_OPENING_TOGETHER: Final = 64
_POLL_S: Final = 0.1
# After the last deadline: what has not come by then never comes.
_PATIENCE_S: Final = 3.0

Text = Callable[[int], str]


class WatchfulConnection:
    """`settled()` once for each question: answered, refused, or its connection lost."""

    def __init__(self, settled: Callable[[], None]) -> None:
        self._settled = settled
        self._dialogue = Dialogue(self._hear, self._lose)
        self._open: dict[str, Asked] = {}
        self._by_response: dict[str, tuple[str, Asked]] = {}

    @property
    def num_inflight(self) -> int:
        return len(self._open)

    @property
    def lost(self) -> bool:
        return self._dialogue.lost

    async def open(self, url: str) -> SessionCreated:
        """Raises `ConnectFailed`."""
        return await self._dialogue.open(url)

    def ask(self, request: ResponseCreate, asked: Asked) -> None:
        asked.sent_s = time.monotonic()
        self._open[request.event_id] = asked
        self._dialogue.send(request)

    def close(self) -> None:
        self._dialogue.close()

    def _hear(self, message: ServerMessage, now_s: float) -> None:
        match message:
            case ResponseDelta():
                asked = self._by_response[message.response_id][1]
                if asked.first_s is None:
                    asked.first_s = now_s
            case ResponseDone():
                self._done(message, now_s)
            case ResponseCreated():
                asked = self._open[message.event_id]
                asked.created_s, asked.predicted = now_s, message.eta_ms is not None
                self._by_response[message.response_id] = (message.event_id, asked)
            case ErrorEvent():
                self._refused(message, now_s)

    def _done(self, message: ResponseDone, now_s: float) -> None:
        response = message.response
        event_id, asked = self._by_response[response.id]
        asked.terminals += 1
        if asked.done_s is not None:
            return
        asked.done_s = now_s
        asked.source, asked.status, asked.reason = response.source, response.status, response.reason
        self._settle(event_id)

    def _refused(self, message: ErrorEvent, now_s: float) -> None:
        asked = self._open.get(message.event_id or "")
        if message.event_id is not None and asked is not None:
            asked.error, asked.done_s = message.error.code, now_s
            self._settle(message.event_id)

    def _settle(self, event_id: str) -> None:
        del self._open[event_id]
        self._settled()

    def _lose(self) -> None:
        for event_id, asked in list(self._open.items()):
            asked.error = CONNECTION_LOST
            self._settle(event_id)


@dataclass(slots=True, kw_only=True)
class Clients:
    """`open`, any number of loops, `close`. `text` gives the question of that number, `max_output_tokens` its answer's
    length."""

    url: str
    text: Text
    max_output_tokens: int
    asked: list[Asked] = field(default_factory=list)
    _limits: Limits | None = None
    _connections: list[WatchfulConnection] = field(default_factory=list)
    _waiting: deque[tuple[int, Asked]] = field(default_factory=deque)
    _turn: int = 0
    _refill: Callable[[], None] | None = None

    async def open(self, num_connections: int) -> Limits:
        """So many are held from now on. Raises `ConnectFailed`. Returns what the server announces."""
        while len(self._connections) < num_connections:
            missing = num_connections - len(self._connections)
            fresh = [WatchfulConnection(self._settled) for _ in range(min(_OPENING_TOGETHER, missing))]
            self._connections += fresh
            sessions = await asyncio.gather(*(connection.open(self.url) for connection in fresh))
            self._limits = sessions[0].limits
        assert self._limits is not None, "no connection was asked for"
        return self._limits

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    async def closed_loop(self, clients: int, *, seconds: float, deadline_ms: int) -> None:
        """Keep `clients` questions unanswered for so long; returns when the last is answered."""
        until_s = time.monotonic() + seconds

        def ask_one() -> None:
            now_s = time.monotonic()
            if now_s < until_s:
                self._come_due(Asked(due_s=now_s, first_token_ms=deadline_ms, deadline_ms=deadline_ms))

        self._refill = ask_one
        for _ in range(clients):
            ask_one()
        await asyncio.sleep(seconds)
        self._refill = None
        await self._until_settled(until_s + deadline_ms / 1_000)

    async def open_loop(self, due: Sequence[Asked]) -> None:
        """Ask each when it is due, whatever became of the ones before; returns when each is settled, or is given up
        three seconds after the last deadline."""
        pacer = Pacer([one.due_s for one in due], lambda index: self._come_due(due[index]))
        try:
            while not pacer.finished and not self.lost:  # noqa: ASYNC110 - a lost connection sets no event
                await asyncio.sleep(_POLL_S)
            await self._until_settled(max(one.due_s + one.deadline_ms / 1_000 for one in due))
        finally:
            pacer.close()

    @property
    def lost(self) -> bool:
        """No request can be sent any more."""
        return all(connection.lost for connection in self._connections)

    async def _until_settled(self, deadline_s: float) -> None:
        while not self.lost and time.monotonic() < deadline_s + _PATIENCE_S:
            if not self._waiting and all(connection.num_inflight == 0 for connection in self._connections):
                break
            await asyncio.sleep(_POLL_S)

    def _come_due(self, asked: Asked) -> None:
        self.asked.append(asked)
        self._waiting.append((len(self.asked), asked))
        self._dispatch()

    def _dispatch(self) -> None:
        """Send what waits while a connection has room: one after the other takes its turn."""
        while self._waiting:
            connection = self._free()
            if connection is None:
                return
            number, asked = self._waiting.popleft()
            request = ResponseCreate(
                event_id=f"bench-{number}",
                input=self.text(number),
                max_output_tokens=self.max_output_tokens,
                temperature=0.0,
                first_token_ms=asked.first_token_ms,
                deadline_ms=asked.deadline_ms,
            )
            connection.ask(request, asked)

    def _free(self) -> WatchfulConnection | None:
        most = self._limits.max_inflight if self._limits else 0
        for _ in self._connections:
            self._turn = (self._turn + 1) % len(self._connections)
            connection = self._connections[self._turn]
            if not connection.lost and connection.num_inflight < most:
                return connection
        return None

    def _settled(self) -> None:
        if self._refill is not None:
            self._refill()
        else:
            self._dispatch()
