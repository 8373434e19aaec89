"""Keep one value of each session in Redis: until its time has passed, it is removed, or its conversation is erased."""

from typing import cast

from shared.redis.calls import RedisCalls
from shared.redis.client import RedisClient
from shared.settings.redis import RedisSettings
from shared.wire.session_key import SessionKey, SessionPart

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


# A value that has changed since it was read stays, and so does one of a consent that was withdrawn since it was given.
_REPLACE = """
local erased, withdrawn = redis.call('GET', KEYS[2]), redis.call('GET', KEYS[3])
if erased and tonumber(erased) > tonumber(ARGV[2]) then return 0 end
if withdrawn and tonumber(withdrawn) >= tonumber(ARGV[4]) then return 0 end
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[5] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
return 1
"""

# Without words there may be some on their way; an open page may state the older consent for a day.
_WITHDRAW = """
local found = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[2], ARGV[1], 'PX', (found or ARGV[2] == '1') and 86400000 or 60000)
return found
"""

_ALWAYS_MS = 2**52


class SessionValue:
    """Each method raises `StoreUnavailable` where Redis does not answer in time."""

    def __init__(self, settings: RedisSettings, what: SessionPart) -> None:
        """Name the value among the session's keys; `History.delete` erases it with the others."""
        self._what = what
        self._calls = RedisCalls(settings, tells=False)
        self._redis = RedisClient(settings, timeout_ms=settings.timeout_ms)
        self._put = self._redis.script(_PUT)
        self._remove = self._redis.script(_REMOVE)
        self._replace = self._redis.script(_REPLACE)
        self._withdraw = self._redis.script(_WITHDRAW)

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

    async def replace(
        self,
        session: SessionKey,
        value: bytes,
        before: bytes | None,
        *,
        generation: int,
        kept_s: float,
        consented_unix_ms: float = _ALWAYS_MS,
    ) -> bool:
        """Keep the value in place of `before`; False if that has changed, or if the generation was erased, or the
        consent of that moment withdrawn."""
        keys = (session.of(self._what), session.of("erased"), session.of("withdrawn"))
        values = (value, generation, int(kept_s * 1_000), int(consented_unix_ms), before or b"")
        return bool(await self._calls.bounded(self._replace(keys, values)))

    async def withdraw(self, session: SessionKey, unix_ms: float, *, asked: bool) -> bytes | None:
        """Withdraw every consent given until that moment: what relies on one is no longer put. `asked`: the customer
        says so. Return the value."""
        keys = (session.of(self._what), session.of("withdrawn"))
        return cast("bytes | None", await self._calls.bounded(self._withdraw(keys, (int(unix_ms), int(asked)))))

    async def remove(self, session: SessionKey, value: bytes) -> bool:
        """Remove this value; return whether it was there: another stays."""
        return bool(await self._calls.bounded(self._remove((session.of(self._what),), (value,))))

    async def close(self) -> None:
        await self._redis.close()
