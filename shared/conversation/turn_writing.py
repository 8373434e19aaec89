"""Write turns in the background: in order within each conversation, with retries for a while during an outage of
Redis."""

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

# Retry a turn for this long, which covers a failover, unless this many are already waiting.
_TRIED_FOR_S: Final = 30.0
_MOST_WAITING: Final = 2_000
_LOOK_S: Final = 10.0  # interval between checks of Redis's memory

Append = Callable[[SessionKey, Turn, bool, bool], Awaitable[bool | None]]
"""Appends a turn, to an edge's journal too if the third argument is True; the last says whether a try has failed.
Returns None during an outage."""


class TurnWriting:
    """The turns that are being written to Redis.

    Args:
        append: appends one turn.
        memory_used: returns the used share of Redis's memory; raises `StoreUnavailable`.
        ttl_s: how long turns are stored.
    """

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

    def unwritten(self, session: SessionKey) -> list[Turn]:
        """Return a conversation's unwritten turns."""
        return list(self._tasks.get(session.redis_key("turns"), {}).values())

    def start(self, session: SessionKey, turn: Turn, *, journal: bool) -> None:
        """Start to write a turn."""
        key = session.redis_key("turns")
        before = list(self._tasks.get(key, ()))
        task = asyncio.create_task(self._write(session, turn, before, journal), name=f"remember {turn.request_id}")
        self._tasks.setdefault(key, {})[task] = turn
        task.add_done_callback(partial(self._written, key))

    async def _write(self, session: SessionKey, turn: Turn, before: "list[asyncio.Task[None]]", journal: bool) -> None:
        """Write a turn after the conversation's earlier ones."""
        with contained("history", request_id=turn.request_id):
            if before:
                await asyncio.wait(before)
            if not self._shares.allows(session.tenant, len(encode_turn(turn)), monotonic_s()):
                metrics.history_unavailable.labels("share").inc()
            elif not await self._append_at_last(session, turn, journal):
                metrics.history_unavailable.labels("lost").inc()
            await self._look()

    async def _look(self) -> None:
        """Check how full Redis is, at most once in `_LOOK_S`."""
        now_s = monotonic_s()
        if now_s >= self._looked_s + _LOOK_S:
            self._looked_s = now_s
            with suppress(StoreUnavailable):
                self._shares.used = await self._memory_used()

    async def _append_at_last(self, session: SessionKey, turn: Turn, journal: bool) -> bool:
        """Append a turn; return whether Redis accepted or rejected it in time.

        Failed turns are retried one at a time, since all at the same moment would overload Redis.
        """
        if await self._append(session, turn, journal, False) is not None:
            return True
        if self._num_waiting >= _MOST_WAITING:
            return False
        self._num_waiting += 1
        until_s = monotonic_s() + _TRIED_FOR_S
        try:
            async with self._trying_again:
                while await self._append(session, turn, journal, True) is None:
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
        """Cancel the unwritten turns of earlier generations, which were erased."""
        turns = self._tasks.get(session.redis_key("turns"), {})
        for task in [task for task, turn in turns.items() if turn.generation < generation]:
            task.cancel()
            del turns[task]

    async def close(self) -> None:
        """Write the remaining turns. Those that Redis does not accept now are lost."""
        self._closing.set()
        tasks = [task for turns in self._tasks.values() for task in turns]
        await asyncio.gather(*tasks, return_exceptions=True)
