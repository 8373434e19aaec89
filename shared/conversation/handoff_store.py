"""Keep the open hand-offs in Redis: one of a conversation, until it is resolved or its time has passed.

A cache, as all that is kept there: without it a customer may be handed over twice, and nothing else happens.
"""

from typing import cast

from shared.conversation.handoffs import Handoff, decode_handoff, encode_handoff
from shared.errors import ProtocolError
from shared.redis.calls import RedisCalls
from shared.redis.client import RedisClient
from shared.settings.redis import RedisSettings
from shared.wire.session_key import SessionKey

# What was asked for in a generation that was erased does not come back.
_PUT = """
local erased = redis.call('GET', KEYS[2])
if erased and tonumber(erased) > tonumber(ARGV[2]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
return 1
"""

# What is open by now may be the conversation's next one.
_REMOVE = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""


class HandoffStore:
    """Each method raises `StoreUnavailable` where Redis does not answer in time."""

    def __init__(self, settings: RedisSettings) -> None:
        self._calls = RedisCalls(settings, tells=False)
        self._redis = RedisClient(settings, timeout_ms=settings.timeout_ms)
        self._put = self._redis.script(_PUT)
        self._remove = self._redis.script(_REMOVE)

    async def find(self, session: SessionKey) -> Handoff | None:
        """Return the hand-off that is open; None also for what another version wrote."""
        value = await self._value(session)
        return None if value is None else _read(value)

    async def generation(self, session: SessionKey) -> int:
        """Return the conversation's generation, 0 where it was not erased lately."""
        key = session.of("erased")
        return int(await self._calls.bounded(self._redis.call(lambda redis: redis.get(key))) or 0)

    async def put(self, handoff: Handoff, *, generation: int, open_s: float) -> bool:
        """Keep one that was asked for in that generation; False where that was erased."""
        keys = (handoff.session.of("handoff"), handoff.session.of("erased"))
        values = (encode_handoff(handoff), generation, int(open_s * 1_000))
        return bool(await self._calls.bounded(self._put(keys, values)))

    async def remove(self, handoff: Handoff) -> bool:
        """Remove a hand-off that is resolved; return whether it was open: another of its conversation stays."""
        value = await self._value(handoff.session)
        if value is None or (kept := _read(value)) is None or kept.id != handoff.id:
            return False
        key = handoff.session.of("handoff")
        return bool(await self._calls.bounded(self._remove((key,), (value,))))

    async def close(self) -> None:
        await self._redis.close()

    async def _value(self, session: SessionKey) -> bytes | None:
        key = session.of("handoff")
        value = await self._calls.bounded(self._redis.call(lambda redis: redis.get(key)))
        return cast("bytes | None", value)  # redis-py says str


def _read(value: bytes) -> Handoff | None:
    try:
        return decode_handoff(value)
    except ProtocolError:
        return None
