"""How many requests a subject and a tenant may make a minute, over all gateways together.

Counted in Redis, by the moving window of `limits`. Redis is a cache: while it is away each gateway counts by itself,
and no request fails by it. A request waits for one call for its subject and one for its tenant, and for one more where
it is refused, each `redis.timeout_ms` at most; after one that fails, for none.
"""

import hashlib
from typing import Final

from limits import RateLimitItemPerMinute
from limits.aio.storage import RedisStorage
from limits.aio.strategies import MovingWindowRateLimiter

from gateway.local_quota import LocalQuota
from shared import metrics
from shared.clock import now_unix_ms, wire_unix_ms
from shared.errors import ProtocolError, StoreUnavailable
from shared.redis_calls import RedisCalls
from shared.redis_client import async_redis
from shared.redis_settings import RedisSettings
from shared.settings import LimitSettings

_KEY_PREFIX: Final = "replyline:quota"


class Quotas:
    """A limit of 0 is none."""

    def __init__(self, limits: LimitSettings, redis: RedisSettings) -> None:
        self._limits = limits
        self._calls = RedisCalls(redis, tells=False)
        self._local = LocalQuota()
        self._redis = async_redis(redis)
        storage = RedisStorage(
            "redis://",  # the pool knows where
            implementation="redispy",
            key_prefix=_KEY_PREFIX,
            connection_pool=self._redis.connection_pool,  # type: ignore[arg-type] # their type leaves it out
        )
        self._window = MovingWindowRateLimiter(storage)

    async def take(self, tenant: str, subject: str) -> None:
        """Count a request. Raises `ProtocolError` where it is one too many; who has no name is not counted by it."""
        of_subject, of_tenant = self._limits.subject_requests_per_minute, self._limits.tenant_requests_per_minute
        if of_subject and subject:
            await self._take("subject", f"{tenant}/{subject}", of_subject)
        if of_tenant:
            await self._take("tenant", tenant, of_tenant)

    async def close(self) -> None:
        await self._redis.aclose()

    async def _take(self, kind: str, whose: str, per_minute: int) -> None:
        name = hashlib.sha256(whose.encode()).hexdigest()[:32]  # Redis' keys name nobody
        try:
            wait_ms = await self._take_shared(RateLimitItemPerMinute(per_minute, namespace=kind), name)
        except StoreUnavailable:
            wait_ms = self._local.take(f"{kind}/{name}", per_minute, now_unix_ms())
        if wait_ms > 0:
            metrics.quota_refusals.labels(kind).inc()
            wait_whole_ms = int(wait_ms) + 1
            raise ProtocolError(
                "rate_limited",
                f"more than {per_minute} requests a minute of this {kind}; wait {wait_whole_ms} ms",
                kind="rate_limit_error",
                retriable=True,
                retry_after_ms=wait_whole_ms,
            )

    async def _take_shared(self, item: RateLimitItemPerMinute, name: str) -> float:
        """Raises `StoreUnavailable`."""
        if await self._calls.bounded(self._window.hit(item, name)):
            return 0.0
        stats = await self._calls.bounded(self._window.get_window_stats(item, name))
        return max(1.0, stats.reset_time * 1_000 - wire_unix_ms())
