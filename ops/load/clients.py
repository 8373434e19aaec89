"""A load of questions over many connections: open loop by a schedule, closed loop by a number of clients.

Everything is driven by callbacks of the event loop, so that the client costs little of the cores it shares.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ops.client.dialogue import CONNECTION_LOST
from ops.client.outcome import Outcome
from ops.load.connection import ChatConnection
from ops.measure.pacer import Pacer
from shared.wire.messages import Limits, ResponseCreate

_START_S: Final = 0.05
_POLL_S: Final = 0.2
_GRACE_S: Final = 10.0
_OPENING_TOGETHER: Final = 64

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    text: str
    max_output_tokens: int
    deadline_ms: int
    ask_deadline: bool = False
    temperature: float = 0.0

    def as_request(self, number: int) -> ResponseCreate:
        return ResponseCreate(
            event_id=f"bench-{number}",
            input=self.text,
            max_output_tokens=self.max_output_tokens,
            temperature=self.temperature,
            deadline_ms=self.deadline_ms if self.ask_deadline else None,
        )


@dataclass(slots=True, kw_only=True)
class Load:
    """One use: `open`, one of the two loops, `close`. `outcomes` are in the order of sending."""

    url: str
    max_inflight: int = 4
    outcomes: list[Outcome] = field(default_factory=list)
    _questions: Sequence[Question] = ()
    _connections: list[ChatConnection] = field(default_factory=list)
    _waiting: deque[tuple[int, Outcome]] = field(default_factory=deque)
    _turn: int = 0
    _num_settled: int = 0
    _last_settled_s: float = 0.0
    _closed_loop: bool = False

    @property
    def num_settled(self) -> int:
        """Questions that have been answered, refused, or lost."""
        return self._num_settled

    async def open(self, num_connections: int) -> Limits:
        """Raises `ConnectFailed`. Returns what the server announces."""
        limits: Limits | None = None
        while len(self._connections) < num_connections:
            batch = min(_OPENING_TOGETHER if limits else 1, num_connections - len(self._connections))
            fresh = [ChatConnection(self._settled) for _ in range(batch)]
            self._connections += fresh
            sessions = await asyncio.gather(*(connection.open(self.url) for connection in fresh))
            limits = sessions[0].limits
        assert limits is not None, "no connection was asked for"
        return limits

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    async def open_loop(self, questions: Sequence[Question], times: Sequence[float], progress: Progress) -> None:
        """Ask each at its time (seconds from the start), whatever became of the ones before. What no connection was
        left for is lost like what had been asked."""
        self._questions = questions
        start_s = time.monotonic() + _START_S
        due_s = [start_s + offset for offset in times]
        pacer = Pacer(due_s, lambda index: self._come_due(index, due_s[index]))
        try:
            await self._until_settled(due_s[-1], progress)
        finally:
            pacer.close()
        for index in range(len(self.outcomes), len(questions)):
            deadline_ms = questions[index].deadline_ms
            self.outcomes.append(Outcome(scheduled_s=due_s[index], deadline_ms=deadline_ms, error=CONNECTION_LOST))

    async def closed_loop(self, questions: Sequence[Question], clients: int, progress: Progress) -> None:
        """Ask `clients` questions at once, and the next one when one is answered."""
        self._questions = questions
        self._closed_loop = True
        for _ in range(min(clients, len(questions))):
            self._ask_next()
        await self._until_settled(time.monotonic(), progress)

    def _come_due(self, index: int, due_s: float) -> None:
        outcome = Outcome(scheduled_s=due_s, deadline_ms=self._questions[index].deadline_ms)
        self.outcomes.append(outcome)
        self._waiting.append((index, outcome))
        self._dispatch()

    def _ask_next(self) -> None:
        index = len(self.outcomes)
        if index < len(self._questions):
            self._come_due(index, time.monotonic())

    def _dispatch(self) -> None:
        """Send what waits while a connection has room: one after the other takes its turn."""
        while self._waiting:
            connection = self._free()
            if connection is None:
                return
            index, outcome = self._waiting.popleft()
            connection.ask(self._questions[index].as_request(index), outcome, time.monotonic())

    def _free(self) -> ChatConnection | None:
        for _ in self._connections:
            self._turn = (self._turn + 1) % len(self._connections)
            connection = self._connections[self._turn]
            if not connection.lost and connection.num_inflight < self.max_inflight:
                return connection
        return None

    def _settled(self, connection: ChatConnection, outcome: Outcome) -> None:
        del connection, outcome
        self._num_settled += 1
        self._last_settled_s = time.monotonic()
        if self._closed_loop:
            self._ask_next()
        else:
            self._dispatch()

    async def _until_settled(self, last_due_s: float, progress: Progress) -> None:
        """Until every question is settled, or nothing has been for as long as the longest deadline and a little."""
        patience_s = max(question.deadline_ms for question in self._questions) / 1_000 + _GRACE_S
        self._last_settled_s = time.monotonic()
        while self._num_settled < len(self._questions):
            await asyncio.sleep(_POLL_S)
            progress(self._num_settled)
            if all(connection.lost for connection in self._connections):
                self._give_up(CONNECTION_LOST)
                break
            if time.monotonic() - max(self._last_settled_s, last_due_s) > patience_s:
                break
        progress(self._num_settled)

    def _give_up(self, code: str) -> None:
        for _, outcome in self._waiting:
            outcome.error = outcome.error or code
        self._waiting.clear()
