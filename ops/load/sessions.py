"""An open loop of conversations: each request at its own time, all of a session over that session's connection.

A connection is opened shortly before its session's first request, and closed after its last one's end; one that was
lost is opened again for the next request. Latency runs from the scheduled time, so a request that had to wait for its
connection has waited.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ops.client.outcome import Outcome
from ops.client.protocol import ConnectFailed
from ops.load.connection import ChatConnection
from ops.load.planned import OPEN_BEFORE_S, Planned
from ops.measure.pacer import Pacer
from shared.wire.messages import Limits, ResponseCreate, SessionStart

CONNECT_FAILED: Final = "connect_failed"
_START_S: Final = 0.05
_OPENING_TOGETHER: Final = 64
_POLL_S: Final = 0.2
_GRACE_S: Final = 10.0

Progress = Callable[[int], None]


@dataclass(slots=True)
class _Talk:
    """A session while it lasts: `waiting` for its connection, `left` to be settled."""

    session_id: str
    left: int
    connection: ChatConnection | None = None
    opening: bool = False
    waiting: list[tuple[ResponseCreate, Outcome]] = field(default_factory=list)


class SessionLoad:
    """One use: `run`. `session_id` names a plan's session to the gateway."""

    def __init__(self, url: str, *, token: str | None, session_id: Callable[[str], str]) -> None:
        self._url, self._token, self._session_id = url, token, session_id
        self._plan: Sequence[Planned] = ()
        self._talks: dict[str, _Talk] = {}
        self._talk_of: dict[ChatConnection, _Talk] = {}
        self._doors = asyncio.Semaphore(_OPENING_TOGETHER)
        self._tasks: set[asyncio.Task[None]] = set()
        self._num_settled = 0
        self._last_settled_s = 0.0

    async def look(self) -> Limits:
        """What the gateway announces. Raises `ConnectFailed`."""
        connection = ChatConnection(lambda _connection, _outcome: None)
        created = await connection.open(self._url, SessionStart(token=self._token))
        connection.close()
        return created.limits

    async def run(self, plan: Sequence[Planned], progress: Progress) -> list[Outcome]:
        """What became of each request, in the plan's order."""
        self._plan = plan
        for one in plan:
            talk = self._talks.setdefault(one.session, _Talk(self._session_id(one.session), 0))
            talk.left += 1
        start_s = time.monotonic() + _START_S
        outcomes = [Outcome(scheduled_s=start_s + one.at_s, deadline_ms=one.deadline_ms) for one in plan]
        steps = _steps(plan)
        pacer = Pacer([start_s + at_s for at_s, _, _ in steps], lambda index: self._step(steps[index], outcomes))
        try:
            await self._until_settled(outcomes, progress)
        finally:
            pacer.close()
            for talk in self._talks.values():
                if talk.connection is not None:
                    talk.connection.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        return outcomes

    def _step(self, step: tuple[float, bool, int], outcomes: Sequence[Outcome]) -> None:
        _, is_request, index = step
        one = self._plan[index]
        talk = self._talks[one.session]
        if not is_request:
            self._open(talk)
            return
        connection = talk.connection
        if connection is not None and not connection.lost:
            connection.ask(one.request, outcomes[index], time.monotonic())
            return
        talk.waiting.append((one.request, outcomes[index]))
        self._open(talk)

    def _open(self, talk: _Talk) -> None:
        if talk.opening or (talk.connection is not None and not talk.connection.lost):
            return
        talk.opening = True
        task = asyncio.ensure_future(self._connect(talk))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, talk: _Talk) -> None:
        connection = ChatConnection(self._settled)
        self._talk_of[connection] = talk
        try:
            async with self._doors:
                await connection.open(self._url, SessionStart(token=self._token, session_id=talk.session_id))
        except ConnectFailed:
            connection.close()
            del self._talk_of[connection]
        else:
            talk.connection = connection
        talk.opening = False
        waiting, talk.waiting = talk.waiting, []
        for request, outcome in waiting:
            if talk.connection is connection:
                connection.ask(request, outcome, time.monotonic())
            else:
                outcome.error = CONNECT_FAILED
                self._count(talk)

    def _settled(self, connection: ChatConnection, outcome: Outcome) -> None:
        del outcome
        self._count(self._talk_of[connection])

    def _count(self, talk: _Talk) -> None:
        talk.left -= 1
        self._num_settled += 1
        self._last_settled_s = time.monotonic()
        if not talk.left and talk.connection is not None:
            talk.connection.close()
            del self._talk_of[talk.connection]
            talk.connection = None

    async def _until_settled(self, outcomes: Sequence[Outcome], progress: Progress) -> None:
        """Until every request is settled, or nothing has been for as long as the longest deadline and a little."""
        patience_s = max(outcome.deadline_ms for outcome in outcomes) / 1_000 + _GRACE_S
        last_due_s = outcomes[-1].scheduled_s
        while self._num_settled < len(outcomes):
            await asyncio.sleep(_POLL_S)
            progress(self._num_settled)
            if time.monotonic() - max(self._last_settled_s, last_due_s) > patience_s:
                break


def _steps(plan: Sequence[Planned]) -> list[tuple[float, bool, int]]:
    """(time, whether it is a request, its place), ascending: each session is opened a second before its first one."""
    first: dict[str, int] = {}
    for index, one in enumerate(plan):
        first.setdefault(one.session, index)
    opened = [(max(0.0, plan[index].at_s - OPEN_BEFORE_S), False, index) for index in first.values()]
    return sorted([*opened, *((one.at_s, True, index) for index, one in enumerate(plan))])
