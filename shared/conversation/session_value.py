"""Store one value for each session in Redis until it expires, is removed, or its conversation is erased."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from shared.redis.calls import RedisCalls
from shared.redis.client import RedisClient
from shared.settings.redis import RedisSettings
from shared.wire.session_key import SessionKey, SessionPart

# A value of an erased generation is not stored.
_PUT = """
local erased = redis.call('GET', KEYS[2])
if erased and tonumber(erased) > tonumber(ARGV[2]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
return 1
"""

# The key may already have the conversation's next value.
_REMOVE = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""


# The value is not replaced if it has changed since it was read, or if the consent it relies on was withdrawn.
_REPLACE = """
local erased, withdrawn = redis.call('GET', KEYS[2]), redis.call('GET', KEYS[3])
if erased and tonumber(erased) > tonumber(ARGV[2]) then return 0 end
if withdrawn and tonumber(withdrawn) >= tonumber(ARGV[4]) then return 0 end
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[5] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
return 1
"""

# If there is no value, one may be about to be written; an open page may send the older consent for up to a day.
_WITHDRAW = """
local found = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[2], ARGV[1], 'PX', (found or ARGV[2] == '1') and 86400000 or 60000)
return found
"""

_ALWAYS_MS = 2**52
_PATIENT_S: Final = 1.0


class SessionValue:
    """One value for each session.

    Each method waits for a slow Redis, since a value that is returned late is not an absent one. It raises
    `StoreUnavailable` if Redis does not answer within a second, or is away.
    """

    def __init__(self, settings: RedisSettings, what: SessionPart) -> None:
        """Create the client. `what` is the key's name within a session; `History.delete` erases that key too."""
        self._what = what
        self._calls = RedisCalls(settings, logs_outages=False)
        self._redis = RedisClient(settings, timeout_ms=settings.timeout_ms)
        self._put = self._redis.script(_PUT)
        self._remove = self._redis.script(_REMOVE)
        self._replace = self._redis.script(_REPLACE)
        self._withdraw = self._redis.script(_WITHDRAW)

    async def find(self, session: SessionKey) -> bytes | None:
        key = session.redis_key(self._what)
        value = await self._call(lambda: self._redis.call(lambda redis: redis.get(key)))
        return cast("bytes | None", value)  # redis-py declares str

    async def generation(self, session: SessionKey) -> int:
        """Return the conversation's generation; 0 if it was not erased recently."""
        key = session.redis_key("erased")
        return int(await self._call(lambda: self._redis.call(lambda redis: redis.get(key))) or 0)

    async def put(self, session: SessionKey, value: bytes, *, generation: int, kept_s: float) -> bool:
        """Store the value; return False if its generation was erased."""
        keys = (session.redis_key(self._what), session.redis_key("erased"))
        return bool(await self._call(lambda: self._put(keys, (value, generation, int(kept_s * 1_000)))))

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
        """Replace `before` with `value`.

        Args:
            session: the conversation.
            value: the new value.
            before: the value that was read; None if there was none.
            generation: the conversation's generation in which `value` was made.
            kept_s: seconds until the value expires.
            consented_unix_ms: when the consent was given that the value relies on.

        Returns:
            False if the value has changed since, the generation was erased, or the consent was withdrawn.
        """
        keys = (session.redis_key(self._what), session.redis_key("erased"), session.redis_key("withdrawn"))
        values = (value, generation, int(kept_s * 1_000), int(consented_unix_ms), before or b"")
        return bool(await self._call(lambda: self._replace(keys, values)))

    async def withdraw(self, session: SessionKey, unix_ms: float, *, asked: bool) -> bytes | None:
        """Withdraw every consent given until `unix_ms`, so that values relying on one are no longer stored; return the
        value.

        Args:
            session: the conversation.
            unix_ms: the time of the withdrawal.
            asked: the customer withdrew it explicitly.
        """
        keys = (session.redis_key(self._what), session.redis_key("withdrawn"))
        return cast("bytes | None", await self._call(lambda: self._withdraw(keys, (int(unix_ms), int(asked)))))

    async def remove(self, session: SessionKey, value: bytes) -> bool:
        """Remove this value and return whether it was there. Another value is not removed."""
        return bool(await self._call(lambda: self._remove((session.redis_key(self._what),), (value,))))

    async def _call(self, call: Callable[[], Awaitable[Any]]) -> Any:
        return await self._calls.patient(call, _PATIENT_S)

    async def close(self) -> None:
        await self._redis.close()
