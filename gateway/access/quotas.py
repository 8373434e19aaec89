"""Limit how much clients may use per minute: by address at this gateway, by subject and tenant across all gateways.

The shared counts are in Redis, with one call for all charges of a message. While Redis is unavailable each gateway
counts by itself and no message fails: the first one waits for `redis.timeout_ms`, the others do not wait.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from gateway.access.charges import MINUTE_MS, ROUNDING_MS, Caller, Charge, Kind, LocalQuota, Overdrawn, Tariff
from shared.errors import ProtocolError, StoreUnavailable
from shared.process.clock import cpu_s, monotonic_s
from shared.redis.calls import RedisCalls
from shared.redis.client import RedisClient
from shared.settings.redis import RedisSettings
from shared.wire.lenient import UNREADABLE
from shared.wire.messages import HandoffReason

# Like `LocalQuota.charge`, by the clock of Redis. ARGV: a minute, the rounding error, then each key's share of a
# minute, all in microseconds. Returns the number of the key that exceeds its limit (0: none), and for how long.
_TAKE: Final = """
local time = redis.call('TIME')
local now, minute, rounding = time[1] * 1000000 + time[2], tonumber(ARGV[1]), tonumber(ARGV[2])
local full = {}
for i, key in ipairs(KEYS) do
  full[i] = math.max(tonumber(redis.call('GET', key) or 0), now) + tonumber(ARGV[2 + i])
  local wait = full[i] - now - minute
  if wait > rounding then return {i, string.format('%.0f', wait)} end
end
for i, key in ipairs(KEYS) do
  redis.call('SET', key, string.format('%.0f', full[i]), 'PX', string.format('%.0f', (full[i] - now) / 1000 + 1))
end
return {0, '0'}
"""


class Quotas:
    """The counts of what clients use. Each charge is made as a whole, or `ProtocolError` is raised with the time to
    wait."""

    def __init__(self, tariff: Tariff, redis: RedisSettings) -> None:
        self._tariff = tariff
        self._calls = RedisCalls(redis, logs_outages=False)
        self._local = LocalQuota()
        self._redis = RedisClient(redis, timeout_ms=redis.timeout_ms)
        self._take = self._redis.script(_TAKE)

    def charge_here(self, kind: Kind, caller: Caller, num_chars: int = 0) -> None:
        """Make the charges that this gateway counts locally (`Tariff.here`)."""
        _check(self._local.charge(self._tariff.here(kind, caller, num_chars), _now_ms()))

    @contextmanager
    def charging_decoding(self, address: str, size: int) -> Iterator[None]:
        """Charge an address for a message of this size that the block refuses, or takes long to decode. Raises
        `ProtocolError` before the block if the address has used up its minute."""
        # Not made here: what is decoded quickly costs nothing.
        _check(self._local.overdrawn(self._tariff.decoded(address, refused_bytes=0), _now_ms()))
        refused_bytes, began_s = None, cpu_s()
        try:
            yield
        except (ProtocolError, *UNREADABLE):
            refused_bytes = size
            raise
        finally:
            cpu_ms = 1_000 * (cpu_s() - began_s)
            self._local.owe(self._tariff.decoded(address, refused_bytes=refused_bytes, cpu_ms=cpu_ms), _now_ms())

    async def charge_shared(self, kind: Kind, caller: Caller) -> None:
        """Make the charges that all gateways count together."""
        _check(await self._charge_shared(caller.session.tenant, self._tariff.shared(kind, caller)))

    async def charge(self, kind: Kind, caller: Caller) -> None:
        """Make all charges of a message."""
        self.charge_here(kind, caller)
        await self.charge_shared(kind, caller)

    async def charge_handoff(self, reason: HandoffReason, caller: Caller) -> None:
        """Charge a hand-off that is about to be opened."""
        _check(await self._charge_shared(caller.session.tenant, self._tariff.opened(reason, caller)))

    async def close(self) -> None:
        await self._redis.close()

    async def _charge_shared(self, tenant: str, charges: Sequence[Charge]) -> Overdrawn | None:
        if not charges:
            return None
        shares = [int(charge.units * MINUTE_MS * 1_000 / charge.per_minute) for charge in charges]
        arguments = (int(MINUTE_MS * 1_000), int(ROUNDING_MS * 1_000), *shares)
        keys = [_key(tenant, charge.name) for charge in charges]
        try:
            number, wait_us = await self._calls.bounded(self._take(keys, arguments))
        except StoreUnavailable:
            return self._local.charge(charges, _now_ms(), tenant=tenant)
        return Overdrawn(charges[number - 1], int(wait_us) / 1_000) if number else None


def _check(overdrawn: Overdrawn | None) -> None:
    """Raise `ProtocolError` if a charge exceeds its limit."""
    if overdrawn is None:
        return
    charge, wait_ms = overdrawn.charge, int(overdrawn.wait_ms) + 1
    raise ProtocolError(
        "rate_limited",
        f"over the limit of this {charge.payer} ({charge.per_minute} per minute); wait {wait_ms} ms",
        kind="rate_limit_error",
        retriable=True,
        retry_after_ms=wait_ms,
    )


def _key(tenant: str, name: str) -> str:
    """Return a bucket's Redis key. A tenant's keys share one slot of a cluster, and contain no names."""
    return f"replyline:quota:{{{_digest(tenant)}}}:{_digest(name)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _now_ms() -> float:
    return monotonic_s() * 1_000
