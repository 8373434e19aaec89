"""Write turns without keeping anybody waiting: each conversation's in their order, for a while where Redis is away."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final

from shared.conversation.memory_shares import MemoryShares
from shared.conversation.turn import Turn, encode_turn
from shared.errors import StoreUnavailable
from shared.process.clock import monotonic_s
from shared.redis.calls import RETRY_AFTER_S
from shared.telemetry import metrics
from shared.telemetry.faults import contained
from shared.wire.session_key import SessionKey

# A turn is tried again for so long, as a failover may take, as long as no more than so many wait for it.
_TRIED_FOR_S: Final = 30.0
_MOST_WAITING: Final = 2_000
_LOOK_S: Final = 10.0  # so seldom Redis is asked how full it is

Append = Callable[[SessionKey, Turn, bool], Awaitable[bool | None]]
"""Append a turn, with an edge's journal or without; None where Redis is away."""


class TurnWriting:
    """The turns on their way to Redis. `memory_used` asks how full it is, and raises `StoreUnavailable`."""

    def __init__(self, append: Append, memory_used: Callable[[], Awaitable[float]], *, ttl_s: float) -> None:
        self._append, self._memory_used = append, memory_used
        self._tasks: dict[str, dict[asyncio.Task[None], Turn]] = {}
        self._num_waiting = 0
        self._shares = MemoryShares(ttl_s)
        self._looked_s = float("-inf")
        self._trying_again = asyncio.Lock()
        self._closing = asyncio.Event()

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def of(self, session: SessionKey) -> list[Turn]:
        """Return a conversation's turns that are on their way."""
        return list(self._tasks.get(session.of("turns"), {}).values())

    def start(self, session: SessionKey, turn: Turn, *, journal: bool) -> None:
        """Begin to write a turn."""
        key = session.of("turns")
        before = list(self._tasks.get(key, ()))
        task = asyncio.create_task(self._write(session, turn, before, journal), name=f"remember {turn.request_id}")
        self._tasks.setdefault(key, {})[task] = turn
        task.add_done_callback(partial(self._written, key))

    async def _write(self, session: SessionKey, turn: Turn, before: "list[asyncio.Task[None]]", journal: bool) -> None:
        """In the conversation's order."""
        with contained("history", request_id=turn.request_id):
            if before:
                await asyncio.wait(before)
            if not self._shares.allows(session.tenant, len(encode_turn(turn)), monotonic_s()):
                metrics.history_unavailable.labels("share").inc()
            elif not await self._append_at_last(session, turn, journal):
                metrics.history_unavailable.labels("lost").inc()
            await self._look()

    async def _look(self) -> None:
        """Look now and then how full Redis is."""
        now_s = monotonic_s()
        if now_s >= self._looked_s + _LOOK_S:
            self._looked_s = now_s
            with suppress(StoreUnavailable):
                self._shares.used = await self._memory_used()

    async def _append_at_last(self, session: SessionKey, turn: Turn, journal: bool) -> bool:
        """Append a turn; return whether Redis has decided about it in time. Those that it did not take are tried again
        one by one: all at once would be too many for it."""
        if await self._append(session, turn, journal) is not None:
            return True
        if self._num_waiting >= _MOST_WAITING:
            return False
        self._num_waiting += 1
        until_s = monotonic_s() + _TRIED_FOR_S
        try:
            async with self._trying_again:
                while await self._append(session, turn, journal) is None:
                    if self._closing.is_set() or monotonic_s() >= until_s:
                        return False
                    with suppress(TimeoutError):
                        async with asyncio.timeout(RETRY_AFTER_S):
                            await self._closing.wait()
        finally:
            self._num_waiting -= 1
        return True

    def _written(self, key: str, task: "asyncio.Task[None]") -> None:
        turns = self._tasks.get(key, {})
        turns.pop(task, None)
        if not turns:
            self._tasks.pop(key, None)

    def forget(self, session: SessionKey, generation: int) -> None:
        """Write nothing more, and show nobody, of what this process is writing of earlier generations: they were
        erased."""
        turns = self._tasks.get(session.of("turns"), {})
        for task in [task for task, turn in turns.items() if turn.generation < generation]:
            task.cancel()
            del turns[task]

    async def close(self) -> None:
        """Write what is on its way; what Redis does not take now is lost."""
        self._closing.set()
        tasks = [task for turns in self._tasks.values() for task in turns]
        await asyncio.gather(*tasks, return_exceptions=True)
