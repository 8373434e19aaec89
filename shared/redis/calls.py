"""Bound every call to Redis in time, and make no calls for a while after a failure.

A call without which an answer would be wrong is `patient`: it waits for a Redis that is slow, not for one that is away.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from redis.exceptions import RedisError

from shared.errors import StoreUnavailable
from shared.process.clock import monotonic_s
from shared.redis.client import cause_of, is_full
from shared.settings.redis import RedisSettings
from shared.telemetry.availability import Availability
from shared.telemetry.logs import get_logger

T = TypeVar("T")

log = get_logger()

_TOLD_FULL_S: Final = 60.0
RETRY_AFTER_S: Final = 1.0  # pause after a failure; a Redis that failed for this long is away
_PATIENT_RETRY_S: Final = 0.05
_GIVEN_BACK: Final = 3
_CANCELLED_AGAIN_S: Final = 0.05


class RedisCalls:
    """Calls of one client on one event loop.

    Args:
        settings: the time limit of a call.
        logs_outages: log outages. Only one client of a process does.
    """

    def __init__(self, settings: RedisSettings, *, logs_outages: bool) -> None:
        self._settings = settings
        self._redis = Availability("redis", logs_outages)
        self._told_full_s = float("-inf")
        self._failing_since_s, self._next_wait_s = float("inf"), float("-inf")
        self.seen = False
        """True once Redis has answered this process."""

    @property
    def problem(self) -> str:
        return self._redis.cause or "no answer yet"

    async def patient(self, call: Callable[[], Awaitable[T]], patient_s: float) -> T:
        """Make a call again and again for `patient_s`, but only once while Redis is away.

        While other calls fail, which wait less, Redis may be away or slow: one caller at a time waits to find out.

        Raises:
            StoreUnavailable: Redis did not answer in that time, or is away.
        """
        until_s = monotonic_s() + patient_s
        while (now_s := monotonic_s()) < until_s:
            away_from_s = self._failing_since_s + RETRY_AFTER_S
            if is_away := now_s >= away_from_s:
                if now_s < self._next_wait_s:
                    break
                self._next_wait_s = until_s + RETRY_AFTER_S
            limit_s = (until_s if is_away else min(until_s, away_from_s)) - now_s
            try:
                return await self.bounded(call(), at_once=True, limit_s=limit_s)
            except StoreUnavailable:
                if is_away or monotonic_s() + _PATIENT_RETRY_S >= until_s:
                    raise
                await asyncio.sleep(_PATIENT_RETRY_S)
        return await self.bounded(call())

    async def bounded(self, call: Awaitable[T], *, at_once: bool = False, limit_s: float = 0.0) -> T:
        """Await a call with the time limit.

        Args:
            call: the call to Redis.
            at_once: call even during the pause after a failure.
            limit_s: the time limit, if longer than that of the settings.

        Raises:
            StoreUnavailable: Redis failed, did not answer in time, or is not called during the pause.
        """
        now_s = monotonic_s()
        if now_s < self._redis.retry_at_s and not at_once:
            if asyncio.iscoroutine(call):
                call.close()
            raise StoreUnavailable("Redis is not called for a moment after a failure")
        try:
            value = await _within(call, max(limit_s, self._settings.timeout_ms / 1_000))
        except (RedisError, OSError, TimeoutError) as error:
            if is_full(error):  # Redis is up, and can be read
                if self._redis.logs_outages and now_s >= self._told_full_s + _TOLD_FULL_S:
                    self._told_full_s = now_s
                    log.warning("redis_full", cause=cause_of(error), action="raise Redis's maxmemory")
                raise StoreUnavailable(f"Redis: {error!r}") from error
            self._failing_since_s = min(self._failing_since_s, now_s)
            self._redis.mark_down(cause_of(error), retry_at_s=now_s + RETRY_AFTER_S)
            raise StoreUnavailable(f"Redis: {error!r}") from error
        self._redis.mark_up()
        self._failing_since_s, self._next_wait_s = float("inf"), float("-inf")
        self.seen = True
        return value


async def _within(call: Awaitable[T], limit_s: float) -> T:
    """Await a call for `limit_s`, without counting time during which this process itself was stalled.

    Redis may have answered during a stall, so the limit is extended by its length.

    Raises:
        TimeoutError: there was no answer in time.
    """
    task = asyncio.current_task()
    assert task is not None, "a coroutine has one"
    before, limit = task.cancelling(), _Limit(task, limit_s)
    try:
        value = await call
    except BaseException:
        if limit.end() and task.cancelling() == before:
            raise TimeoutError from None
        raise
    late = limit.end()
    if task.cancelling() > before:  # redis-py lost it
        raise asyncio.CancelledError
    if late:
        raise TimeoutError
    return value


class _Limit:
    """Cancels a task after `limit_s`. redis-py loses a cancel that comes as its connection is made, and then waits for
    a silent Redis's answer, so the task is cancelled again until `end`. A task of the call's own would cost as much as
    the call.
    """

    __slots__ = ("_cancels", "_due_s", "_left", "_limit_s", "_loop", "_task", "_timer")

    def __init__(self, task: "asyncio.Task[object]", limit_s: float) -> None:
        self._task, self._loop = task, task.get_loop()
        self._cancels, self._left = 0, _GIVEN_BACK
        self._start(limit_s)

    def end(self) -> bool:
        """Stop; return whether the time was over."""
        self._timer.cancel()
        for _ in range(self._cancels):
            self._task.uncancel()
        return self._cancels > 0

    def _start(self, limit_s: float) -> None:
        self._limit_s, self._due_s = limit_s, monotonic_s() + limit_s
        self._timer = self._loop.call_later(limit_s, self._is_due)

    def _is_due(self) -> None:
        self._left -= 1
        stalled_s = min(self._limit_s, monotonic_s() - self._due_s)
        if self._left > 0 and stalled_s > 0:
            self._start(stalled_s)
            return
        self._cancels += 1
        self._task.cancel()
        self._timer = self._loop.call_later(_CANCELLED_AGAIN_S, self._is_due)
