"""Keep in Redis which partition each conversation's questions go to, for all gateways: docs/decisions/0036.

A question claims a partition. While an earlier one of its conversation may still be answered, the claim is that one's
partition, whatever was wanted: they stand in one log, and one worker answers them in their order.
"""

from collections.abc import Collection
from typing import Final, Literal, NamedTuple, cast

from shared.redis.calls import RedisCalls
from shared.redis.client import RedisClient
from shared.settings.redis import RedisSettings
from shared.wire.session_key import SessionKey

How = Literal["new", "kept", "moved", "pinned"]
"""Whether nobody knew a conversation's partition; or it keeps it, has moved, or waits there behind an earlier
question."""
_ANY: Final = "any"

# Beside `at` there is a field for each question: until when it may be answered. After its end, and if nobody will
# release it, the field's name begins with `~`, which no id does.
_CLAIM: Final = """
local held, at, how, open = redis.call('HGETALL', KEYS[1]), nil, 'new', {}
local wanted, request, now, until_ms, kept_s, staying = unpack(ARGV)
for i = 1, #held, 2 do
  if held[i] == 'at' then at = held[i + 1]
  elseif tonumber(held[i + 1]) > tonumber(now) then
    how = 'pinned'
    if string.sub(held[i], 1, 1) ~= '~' and held[i] ~= request then open[#open + 1] = held[i] end
  else redis.call('HDEL', KEYS[1], held[i]) end
end
if not at then how = 'new'
elseif how ~= 'pinned' then
  how = (staying == 'any' or string.find(staying, ',' .. at .. ',', 1, true)) and 'kept' or 'moved'
end
if how == 'new' or how == 'moved' then at = wanted end
redis.call('HSET', KEYS[1], 'at', at, request, until_ms)
redis.call('EXPIRE', KEYS[1], kept_s)
return {at, how, open}
"""
# What has been erased meanwhile is not written again.
_RELEASE: Final = """
local until_ms = redis.call('HGET', KEYS[1], ARGV[1])
if until_ms then
  redis.call('HDEL', KEYS[1], ARGV[1])
  if tonumber(until_ms) > tonumber(ARGV[2]) then until_ms = ARGV[2] end
  redis.call('HSET', KEYS[1], '~' .. ARGV[1], until_ms)
end
"""


class Claimed(NamedTuple):
    """The partition that a question gets, and how; `open` are the ids of the other questions without an end."""

    partition: int
    how: How
    open: tuple[str, ...] = ()


class Places:
    """The conversations' places in Redis. Each method raises `StoreUnavailable` where Redis does not answer in time."""

    def __init__(self, settings: RedisSettings) -> None:
        self._kept_s = settings.history_ttl_s
        self._calls = RedisCalls(settings, tells=False)
        self._redis = RedisClient(settings, timeout_ms=settings.timeout_ms)
        self._claim = self._redis.script(_CLAIM)
        self._release = self._redis.script(_RELEASE)

    async def claim(
        self,
        session: SessionKey,
        request_id: str,
        wanted: int,
        *,
        staying: Collection[int] | None,
        now_unix_ms: float,
        until_unix_ms: float,
        released: bool = True,
    ) -> Claimed:
        """Claim a partition for a question: that of an earlier one which may still be answered; else that of the last
        one, if it is one of `staying` (None: any); else the wanted one. The question may be answered until that moment,
        or until it is released. Without `released` no call of `release` follows: it is never among the open ones."""
        names = _ANY if staying is None else f",{','.join(map(str, staying))},"
        name = request_id if released else f"~{request_id}"
        values = (wanted, name, int(now_unix_ms), int(until_unix_ms), self._kept_s, names)
        at, how, open_ids = await self._calls.bounded(self._claim((session.of("place"),), values))
        return Claimed(int(at), cast(How, how.decode()), tuple(each.decode() for each in open_ids))

    async def release(self, session: SessionKey, request_id: str, until_unix_ms: float) -> None:
        """Note that a question has been answered; it holds its conversation until that moment at most."""
        await self._calls.bounded(self._release((session.of("place"),), (request_id, int(until_unix_ms))))

    async def close(self) -> None:
        await self._redis.close()
