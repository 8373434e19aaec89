"""Keep in Redis which partition each conversation's questions go to, for all gateways: docs/decisions/0036.

A question claims a partition. While an earlier one of its conversation may still be answered, the claim is that one's
partition, whatever was wanted: they stand in one log, and one worker answers them in their order.
"""

from typing import Final

from shared.redis.calls import RedisCalls
from shared.redis.client import RedisClient
from shared.settings.redis import RedisSettings
from shared.wire.session_key import SessionKey

_AT: Final = b"at"

# Beside `at` there is a field for each question: until when it may be answered.
_CLAIM: Final = """
local held, at, pinned = redis.call('HGETALL', KEYS[1]), nil, false
for i = 1, #held, 2 do
  if held[i] == 'at' then at = held[i + 1]
  elseif tonumber(held[i + 1]) > tonumber(ARGV[3]) then pinned = true
  else redis.call('HDEL', KEYS[1], held[i]) end
end
if not (at and pinned) then at = ARGV[1] end
redis.call('HSET', KEYS[1], 'at', at, ARGV[2], ARGV[4])
redis.call('EXPIRE', KEYS[1], ARGV[5])
return at
"""
# What has been erased meanwhile is not written again.
_RELEASE: Final = """
local until_ms = tonumber(redis.call('HGET', KEYS[1], ARGV[1]))
if until_ms and until_ms > tonumber(ARGV[2]) then redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) end
"""


class Places:
    """The conversations' places in Redis. Each method raises `StoreUnavailable` where Redis does not answer in time."""

    def __init__(self, settings: RedisSettings) -> None:
        self._kept_s = settings.history_ttl_s
        self._calls = RedisCalls(settings, tells=False)
        self._redis = RedisClient(settings, timeout_ms=settings.timeout_ms)
        self._claim = self._redis.script(_CLAIM)
        self._release = self._redis.script(_RELEASE)

    async def find(self, session: SessionKey, now_unix_ms: float) -> tuple[int | None, bool]:
        """Return the partition of a conversation's last question, None where nobody knows; and whether a question of it
        may still be answered there."""
        key = session.of("place")
        held = dict(await self._calls.bounded(self._redis.call(lambda redis: redis.hgetall(key))))
        at = held.pop(_AT, None)
        return None if at is None else int(at), any(int(until) > now_unix_ms for until in held.values())

    async def claim(
        self, session: SessionKey, request_id: str, wanted: int, *, now_unix_ms: float, until_unix_ms: float
    ) -> int:
        """Return the partition that a question goes to: the wanted one, unless an earlier question holds the
        conversation elsewhere. The question may be answered until that moment, or until it is released."""
        values = (wanted, request_id, int(now_unix_ms), int(until_unix_ms), self._kept_s)
        return int(await self._calls.bounded(self._claim((session.of("place"),), values)))

    async def release(self, session: SessionKey, request_id: str, until_unix_ms: float) -> None:
        """Note that a question has been answered; it holds its conversation until that moment at most."""
        await self._calls.bounded(self._release((session.of("place"),), (request_id, int(until_unix_ms))))

    async def close(self) -> None:
        await self._redis.close()
