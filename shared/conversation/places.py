"""Store in Redis which partition each conversation's questions go to, for all gateways (docs/decisions/0036).

A question claims a partition. While an earlier question of the conversation may still be answered, the claim returns
that question's partition: both are then in one log, and one worker answers them in order.
"""

from collections.abc import Collection
from typing import Final, Literal, NamedTuple, cast

from shared.redis.calls import RedisCalls
from shared.redis.client import RedisClient
from shared.settings.redis import RedisSettings
from shared.wire.session_key import SessionKey

How = Literal["new", "kept", "moved", "pinned"]
"""How a partition was chosen: "new" if none was stored, "kept" the stored one, "moved" to the wanted one, "pinned" by
an earlier question that is open.
"""
_ANY: Final = "any"

# Besides `at` there is a field for each question with the time until which it may be answered. After its end, and if no
# `release` will follow, the field's name begins with `~`, which no id does; after `unpin` it begins with `~+`.
_CLAIM: Final = """
local held, at, how, open = redis.call('HGETALL', KEYS[1]), nil, 'new', {}
local wanted, request, now, until_ms, kept_s, staying = unpack(ARGV)
for i = 1, #held, 2 do
  if held[i] == 'at' then at = held[i + 1]
  elseif tonumber(held[i + 1]) > tonumber(now) then
    local name = held[i]
    if string.sub(name, 1, 2) == '~+' then name = string.sub(name, 3) else how = 'pinned' end
    if string.sub(name, 1, 1) ~= '~' and name ~= request then open[#open + 1] = name end
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
# Do not recreate a field that an erasure has deleted.
_RELEASE: Final = """
for _, name in ipairs({ARGV[1], '~+' .. ARGV[1]}) do
  local until_ms = redis.call('HGET', KEYS[1], name)
  if until_ms then
    redis.call('HDEL', KEYS[1], name)
    if tonumber(until_ms) > tonumber(ARGV[2]) then until_ms = ARGV[2] end
    redis.call('HSET', KEYS[1], '~' .. ARGV[1], until_ms)
  end
end
"""
_UNPIN: Final = """
local until_ms = redis.call('HGET', KEYS[1], ARGV[1])
if until_ms then
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('HSET', KEYS[1], '~+' .. ARGV[1], until_ms)
end
"""


class Claimed(NamedTuple):
    """The partition for a question, and how it was chosen. `open` are the ids of the conversation's other open
    questions."""

    partition: int
    how: How
    open: tuple[str, ...] = ()


class Places:
    """The conversations' partitions in Redis. Each method raises `StoreUnavailable` if Redis does not answer in
    time."""

    def __init__(self, settings: RedisSettings) -> None:
        self._kept_s = settings.history_ttl_s
        self._calls = RedisCalls(settings, logs_outages=False)
        self._redis = RedisClient(settings, timeout_ms=settings.timeout_ms)
        self._claim = self._redis.script(_CLAIM)
        self._release = self._redis.script(_RELEASE)
        self._unpin = self._redis.script(_UNPIN)

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
        """Claim a partition for a question.

        It is the partition of an earlier question that may still be answered; else the conversation's last one if
        `staying` allows it; else the wanted one.

        Args:
            session: the conversation.
            request_id: the question.
            wanted: the partition that the caller would choose.
            staying: partitions on which a conversation may remain; None for all.
            now_unix_ms: the current time.
            until_unix_ms: the question may be answered until this time, unless it is released before.
            released: False if no call of `release` will follow; then the question is never among the open ones.
        """
        names = _ANY if staying is None else f",{','.join(map(str, staying))},"
        name = request_id if released else f"~{request_id}"
        values = (wanted, name, int(now_unix_ms), int(until_unix_ms), self._kept_s, names)
        at, how, open_ids = await self._calls.bounded(self._claim((session.redis_key("place"),), values))
        return Claimed(int(at), cast(How, how.decode()), tuple(each.decode() for each in open_ids))

    async def release(self, session: SessionKey, request_id: str, until_unix_ms: float) -> None:
        """Mark a question as answered. It keeps the conversation on its partition until `until_unix_ms` at most."""
        await self._calls.bounded(self._release((session.redis_key("place"),), (request_id, int(until_unix_ms))))

    async def unpin(self, session: SessionKey, request_id: str) -> None:
        """Let the conversation leave a question's partition. The question remains among the open ones until its
        `release` or until the time of its claim."""
        await self._calls.bounded(self._unpin((session.redis_key("place"),), (request_id,)))

    async def close(self) -> None:
        await self._redis.close()
