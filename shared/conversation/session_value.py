"""Keep one value of each session in Redis: until its time has passed, it is removed, or its conversation is erased."""

from typing import cast

from shared.redis.calls import RedisCalls
from shared.redis.client import RedisClient
from shared.settings.redis import RedisSettings
from shared.wire.session_key import SessionKey

# What was put in a generation that was erased does not come back.
_PUT = """
local erased = redis.call('GET', KEYS[2])
if erased and tonumber(erased) > tonumber(ARGV[2]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
return 1
"""

# What is there by now may be the conversation's next one.
_REMOVE = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""


class SessionValue:
    """Each method raises `StoreUnavailable` where Redis does not answer in time."""

    def __init__(self, settings: RedisSettings, what: str) -> None:
        """Name the value among the session's keys; `History.delete` erases it with the others."""
        self._what = what
        self._calls = RedisCalls(settings, tells=False)
        self._redis = RedisClient(settings, timeout_ms=settings.timeout_ms)
        self._put = self._redis.script(_PUT)
        self._remove = self._redis.script(_REMOVE)

    async def find(self, session: SessionKey) -> bytes | None:
        key = session.of(self._what)
        value = await self._calls.bounded(self._redis.call(lambda redis: redis.get(key)))
        return cast("bytes | None", value)  # redis-py says str

    async def generation(self, session: SessionKey) -> int:
        """Return the conversation's generation, 0 where it was not erased lately."""
        key = session.of("erased")
        return int(await self._calls.bounded(self._redis.call(lambda redis: redis.get(key))) or 0)

    async def put(self, session: SessionKey, value: bytes, *, generation: int, kept_s: float) -> bool:
        """Keep the value of that generation; False where that was erased."""
        keys = (session.of(self._what), session.of("erased"))
        return bool(await self._calls.bounded(self._put(keys, (value, generation, int(kept_s * 1_000)))))

    async def remove(self, session: SessionKey, value: bytes) -> bool:
        """Remove this value; return whether it was there: another stays."""
        return bool(await self._calls.bounded(self._remove((session.of(self._what),), (value,))))

    async def close(self) -> None:
        await self._redis.close()
