"""Bound every call to Redis in time, and make no calls for a while after a failure.

A call without which an answer would be wrong is `patient`: it waits for a Redis that is slow, not for one that is away.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from redis.exceptions import RedisError

from shared.errors import StoreUnavailable
from shared.process.clock import monotonic_s
from shared.process.tasks import abandon
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
        self._failing_since_s = float("inf")
        self.seen = False
        """True once Redis has answered this process."""

    @property
    def problem(self) -> str:
        return self._redis.cause or "no answer yet"

    async def patient(self, call: Callable[[], Awaitable[T]], patient_s: float) -> T:
        """Make a call again and again for `patient_s`, but only once while Redis is away.

        Raises:
            StoreUnavailable: Redis did not answer in that time, or is away.
        """
        until_s = monotonic_s() + patient_s
        while (left_s := min(until_s, self._failing_since_s + RETRY_AFTER_S) - monotonic_s()) > 0:
            try:
                return await self.bounded(call(), at_once=True, limit_s=left_s)
            except StoreUnavailable:
                if monotonic_s() + _PATIENT_RETRY_S >= until_s:
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
        self._failing_since_s = float("inf")
        self.seen = True
        return value


async def _within(call: Awaitable[T], limit_s: float) -> T:
    """Await a call for `limit_s`, without counting time during which this process itself was stalled.

    Redis may have answered during a stall, so the limit is extended by its length.

    Raises:
        TimeoutError: there was no answer in time.
    """
    asking = asyncio.ensure_future(call)
    try:
        for _ in range(_GIVEN_BACK):
            due_s = monotonic_s() + limit_s
            done, _pending = await asyncio.wait((asking,), timeout=limit_s)
            limit_s = min(limit_s, monotonic_s() - due_s)
            if done or limit_s <= 0:
                break
        if not asking.done():
            raise TimeoutError
        return asking.result()
    finally:
        # redis-py loses a cancel that comes as its connection is made, and then waits for a silent Redis's answer.
        while not asking.done():
            abandon(asking)
            await asyncio.wait((asking,), timeout=_CANCELLED_AGAIN_S)
