"""A load of questions over many connections: an open loop with planned times, or a closed loop with a number of
clients.

Latency is measured from the scheduled time, so the time that a request waits for its connection is included. Everything
runs in callbacks of the event loop, so that the client uses little of the CPU that it shares with the system measured.
"""

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ops.lab.client.connection import ChatConnection
from ops.lab.client.outcome import Outcome
from ops.lab.client.plan import OPEN_BEFORE_S, Planned
from ops.measure.pacer import Pacer
from shared.client.telling import ConnectFailed
from shared.wire.messages import Limits, SessionStart

CONNECT_FAILED: Final = "connect_failed"
_START_S: Final = 0.05
_OPENING_TOGETHER: Final = 64
_POLL_S: Final = 0.2
_GRACE_S: Final = 10.0

Progress = Callable[[int], None]


@dataclass(slots=True)
class _Line:
    """Questions that share connections: those of one session, or all questions without a session. `waiting` are indices
    in the plan; `left` is the number of unsettled questions."""

    name: str
    size: int
    left: int = 0
    connections: deque[ChatConnection] = field(default_factory=deque)
    waiting: deque[int] = field(default_factory=deque)
    opening: bool = False

    def free(self, most: int) -> ChatConnection | None:
        """Return a live connection with room for another question, in rotation."""
        for _ in range(len(self.connections)):
            self.connections.rotate(-1)
            if not self.connections[0].lost and self.connections[0].num_inflight < most:
                return self.connections[0]
        return None

    @property
    def lives(self) -> bool:
        return any(not connection.lost for connection in self.connections)


class LoadRun:
    """Asks a gateway the questions of a plan, once.

    Requests without a session share `connections`, each with at most `max_inflight` unanswered. A session's connection
    is opened shortly before its first request and closed after its last answer; a lost connection is opened again for
    the next request.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        name: str = "bench",
        connections: int = 1,
        max_inflight: int = 1_000_000,
    ) -> None:
        self._url, self._token, self._max_inflight = url, token, max_inflight
        # A different name each time: a question repeated within two minutes is answered only once.
        self._name = f"{name}-{secrets.token_hex(4)}"
        self._connections = connections
        self._plan: Sequence[Planned] = ()
        self._outcomes: list[Outcome] = []
        self._lines: dict[str, _Line] = {}
        self._doors = asyncio.Semaphore(_OPENING_TOGETHER)
        self._tasks: set[asyncio.Task[None]] = set()
        self._next: int | None = None  # of a closed loop: the next question to ask
        self._num_settled = 0
        self._last_settled_s = 0.0

    @property
    def outcomes(self) -> Sequence[Outcome]:
        """Return what is known so far about each request, in the plan's order; empty before the first is due."""
        return self._outcomes

    async def look(self) -> Limits:
        """Return the limits that the gateway announces. Raises `ConnectFailed`."""
        connection = ChatConnection(lambda _connection, _outcome: None)
        created = await connection.open(self._url, SessionStart(token=self._token))
        connection.close()
        return created.limits

    async def run(
        self, plan: Sequence[Planned], progress: Progress = lambda _: None, *, clients: int | None = None
    ) -> list[Outcome]:
        """Run the plan and return the outcome of each request, in the plan's order.

        Args:
            plan: the requests with their times
            progress: called with the number of settled requests
            clients: run a closed loop: ask this many at the same time, and the next one when one is settled, ignoring
                the plan's times

        Raises:
            ConnectFailed: at the start, a shared connection or one of a closed loop cannot be opened
        """
        self._plan = plan
        for one in plan:
            size = 1 if one.session else self._connections
            self._lines.setdefault(one.session, _Line(one.session, size)).left += 1
        at_once = [line for line in self._lines.values() if clients is not None or not line.name]
        pacer: Pacer | None = None
        try:
            await asyncio.gather(*(self._connect(line) for line in at_once))
            pacer = self._begin(clients)
            await self._until_settled(progress)
        finally:
            if pacer is not None:
                pacer.close()
            for line in self._lines.values():
                self._close(line)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        return self._outcomes

    def _begin(self, clients: int | None) -> Pacer | None:
        start_s = time.monotonic() + _START_S
        if clients is not None:
            self._outcomes = [Outcome(scheduled_s=start_s, deadline_ms=one.deadline_ms) for one in self._plan]
            self._next = 0
            for _ in range(clients):
                self._ask_next()
            return None
        start_s += OPEN_BEFORE_S
        self._outcomes = [Outcome(scheduled_s=start_s + one.at_s, deadline_ms=one.deadline_ms) for one in self._plan]
        steps = _steps(self._plan)
        return Pacer([start_s + at_s for at_s, _, _ in steps], lambda place: self._step(*steps[place]))

    def _step(self, _at_s: float, is_request: bool, index: int) -> None:
        line = self._lines[self._plan[index].session]
        if is_request:
            line.waiting.append(index)
        self._serve(line)

    def _ask_next(self) -> None:
        if self._next is not None and self._next < len(self._plan):
            index, self._next = self._next, self._next + 1
            self._outcomes[index].scheduled_s = time.monotonic()
            self._step(0.0, True, index)

    def _serve(self, line: _Line) -> None:
        """Ask the waiting questions while a connection has room; open connections if none is live."""
        while line.waiting and (connection := line.free(self._max_inflight)) is not None:
            index = line.waiting.popleft()
            connection.ask(self._plan[index].request, self._outcomes[index], time.monotonic())
        if not line.lives and not line.opening:
            line.opening = True
            task = asyncio.ensure_future(self._open(line))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _open(self, line: _Line) -> None:
        try:
            await self._connect(line)
        except ConnectFailed:
            waiting, line.waiting = line.waiting, deque()
            for index in waiting:
                self._outcomes[index].error = CONNECT_FAILED
                self._count(line)
        finally:
            line.opening = False
        if line.waiting:
            self._serve(line)

    async def _connect(self, line: _Line) -> None:
        """Open all connections of a line. Raises `ConnectFailed`."""
        self._close(line)
        session = f"{self._name}-{line.name}" if line.name else None
        start = SessionStart(token=self._token, session_id=session)
        fresh = [ChatConnection(lambda _connection, _outcome: self._settled(line)) for _ in range(line.size)]

        async def open_one(connection: ChatConnection) -> None:
            async with self._doors:
                await connection.open(self._url, start)

        failed = await asyncio.gather(*map(open_one, fresh), return_exceptions=True)
        line.connections.extend(fresh)
        for failure in failed:
            if failure is not None:
                self._close(line)
                raise failure

    def _settled(self, line: _Line) -> None:
        self._count(line)
        if line.waiting:
            self._serve(line)

    def _count(self, line: _Line) -> None:
        line.left -= 1
        self._num_settled += 1
        self._last_settled_s = time.monotonic()
        if not line.left:
            self._close(line)
        self._ask_next()

    def _close(self, line: _Line) -> None:
        for connection in line.connections:
            connection.close()
        line.connections.clear()

    async def _until_settled(self, progress: Progress) -> None:
        """Wait until every request is settled, or none was settled for slightly longer than the longest deadline."""
        patience_s = max(outcome.deadline_ms for outcome in self._outcomes) / 1_000 + _GRACE_S
        self._last_settled_s = time.monotonic()
        while self._num_settled < len(self._outcomes):
            await asyncio.sleep(_POLL_S)
            progress(self._num_settled)
            last_due_s = 0.0 if self._next is not None else self._outcomes[-1].scheduled_s
            if time.monotonic() - max(self._last_settled_s, last_due_s) > patience_s:
                break


def _steps(plan: Sequence[Planned]) -> list[tuple[float, bool, int]]:
    """Return (time, whether it is a request, index) in ascending order. Each session is opened a second before its
    first request."""
    first: dict[str, int] = {}
    for index, one in enumerate(plan):
        first.setdefault(one.session, index)
    opened = [(plan[index].at_s - OPEN_BEFORE_S, False, index) for name, index in first.items() if name]
    return sorted([*opened, *((one.at_s, True, index) for index, one in enumerate(plan))])
