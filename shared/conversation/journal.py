"""The journal of an edge's answers and erasures that its centre has not stored yet, in order: a list in the edge's
Redis. Turns and erasures are written in one script with the history, so an entry is always in both.

Each entry has a number: the epoch of the process that wrote it, and a sequence that grows within the epoch. The centre
stores the last number of each epoch with the turn, so an entry that is sent again is not stored again. The sequence
follows Redis' clock in microseconds, so a Redis that was restored from a backup does not repeat a number. Each process
has a separate epoch, so two edges that were started from one backup do not share one.
"""

import secrets
from typing import Any, Final

import msgspec

from shared.conversation.turn import Turn
from shared.redis.calls import RedisCalls
from shared.redis.client import RedisClient
from shared.settings.redis import RedisSettings
from shared.wire.fields import Count, Identifier
from shared.wire.session_key import SessionKey

_LIST: Final = "replyline:journal"
_BYTES: Final = f"{_LIST}:bytes"
JOURNAL_KEYS: Final = (_LIST, _BYTES, f"{_LIST}:sequence")
MAX_JOURNAL_BYTES: Final = 64 << 20
"""A journal of this size accepts no more turns. It accepts erasures up to twice this size."""
CLOCK_HEADER: Final = "replyline-clock"
"""When an edge sent what its journal has, in Unix milliseconds by its own clock."""
_PLACE: Final = f"{_LIST}:erasures"
_MAX_ENTRIES: Final = 50

# `add_entry` is called with the place of the journal's keys, an entry without its closing bracket, and the bytes that a
# full journal has. It returns false for a full one.
ADD_ENTRY: Final = """
local function is_full(at, most) return tonumber(redis.call('GET', KEYS[at + 1]) or 0) >= tonumber(most) end
local function add_entry(at, entry, most)
  if is_full(at, most) then return false end
  local time = redis.call('TIME')
  local last = tonumber(redis.call('GET', KEYS[at + 2]) or 0)
  local sequence = string.format('%.0f', math.max(last + 1, time[1] * 1000000 + time[2]))
  redis.call('SET', KEYS[at + 2], sequence)
  local whole = entry .. sequence .. '}'
  redis.call('RPUSH', KEYS[at], whole)
  redis.call('INCRBY', KEYS[at + 1], #whole)
  return true
end
"""
# `remove_turns` is called with the place of the journal's keys, and how a conversation's entries begin.
REMOVE_TURNS: Final = """
local function remove_turns(at, entry)
  local first, found = entry .. ',"turn"', {}
  for from = 0, redis.call('LLEN', KEYS[at]), 1000 do
    for _, each in ipairs(redis.call('LRANGE', KEYS[at], from, from + 999)) do
      if string.sub(each, 1, #first) == first then found[#found + 1] = each end
    end
  end
  for _, each in ipairs(found) do
    redis.call('LREM', KEYS[at], 1, each)
    redis.call('DECRBY', KEYS[at + 1], #each)
  end
end
"""
# Remove the entries that stand first, as far as they are the given ones: another process may have removed some.
_DROP: Final = """
for at, entry in ipairs(ARGV) do
  if redis.call('LINDEX', KEYS[1], 0) ~= entry then break end
  redis.call('LPOP', KEYS[1])
  redis.call('DECRBY', KEYS[2], #entry)
end
"""
_DROP_TURNS: Final = """
local entries, bytes = redis.call('LRANGE', KEYS[1], 0, -1), 0
redis.call('DEL', KEYS[1])
for _, entry in ipairs(entries) do
  if cjson.decode(entry).erased then
    redis.call('RPUSH', KEYS[1], entry)
    bytes = bytes + #entry
  end
end
redis.call('SET', KEYS[2], bytes)
"""


class Journalled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A turn of a conversation, or the generation that began as it was `erased`, and the one `before` it at the edge;
    None from edges of earlier releases. An entry without an `epoch` is not numbered."""

    session_id: Identifier
    turn: Turn | None = None
    erased: Count | None = None
    before: Count | None = None
    epoch: str = ""
    sequence: Count = 0

    def at_centre(self, ahead_ms: int, now_unix_ms: int) -> "Journalled":
        """Return the entry with its turn's time by the centre's clock, which the edge's is `ahead_ms` ahead of. A turn
        of the future would be in no prompt, so a later time is now."""
        if self.turn is None:
            return self
        asked_unix_ms = min(max(self.turn.asked_unix_ms - ahead_ms, 0), now_unix_ms)
        if asked_unix_ms == self.turn.asked_unix_ms:
            return self
        return msgspec.structs.replace(self, turn=msgspec.structs.replace(self.turn, asked_unix_ms=asked_unix_ms))


class EntryWriter:
    """Writes entries for the scripts of one process."""

    def __init__(self) -> None:
        self._end = b',"epoch":"' + secrets.token_hex(8).encode() + b'","sequence":'

    def turn(self, session: SessionKey, turn: Turn) -> bytes:
        """Return a turn's entry up to its sequence, without its tokens: they mean something to one model alone."""
        told = msgspec.structs.replace(turn, output_ids=(), window_start=None)
        return _encode(Journalled(session_id=session.session_id, turn=told))[:-1] + self._end

    def erasure(self, session: SessionKey) -> tuple[bytes, bytes]:
        """Return an erasure's entry without the generation and sequence, which the script writes. It has two parts: the
        common beginning of all entries of the conversation, and the text after the generation."""
        return _encode({"session_id": session.session_id})[:-1], self._end


class Journal:
    """The edge's end of it; to be closed. Methods raise `StoreUnavailable`."""

    def __init__(self, settings: RedisSettings) -> None:
        self._calls = RedisCalls(settings, logs_outages=False)
        self._redis = RedisClient(settings, timeout_ms=settings.timeout_ms)
        self._drop = self._redis.script(_DROP)
        self._drop_turns = self._redis.script(_DROP_TURNS)

    async def first(self, max_bytes: int) -> list[bytes]:
        """Return the first entries that have `max_bytes` together, one at least if there is any."""
        values: list[Any] = await self._calls.bounded(
            self._redis.call(lambda redis: redis.lrange(_LIST, 0, _MAX_ENTRIES - 1))
        )
        chosen: list[bytes] = []
        for value in values:
            if chosen and sum(map(len, chosen)) + len(value) > max_bytes:
                break
            chosen.append(value)
        return chosen

    async def size(self) -> tuple[int, int]:
        """Return how many entries wait, and their bytes."""
        num = await self._calls.bounded(self._redis.call(lambda redis: redis.llen(_LIST)))
        num_bytes = await self._calls.bounded(self._redis.call(lambda redis: redis.get(_BYTES)))
        return int(num), int(num_bytes or 0)

    async def drop(self, entries: list[bytes]) -> None:
        """Remove the entries, which the centre has, from the front."""
        await self._calls.bounded(self._drop(JOURNAL_KEYS[:2], entries))

    async def drop_turns(self) -> None:
        """Remove all turns; erasures stay."""
        await self._calls.bounded(self._drop_turns(JOURNAL_KEYS[:2], ()))

    async def place(self) -> int | None:
        """Return the place in the centre's erasures up to which they are known here; None before the first."""
        found = await self._calls.bounded(self._redis.call(lambda redis: redis.get(_PLACE)))
        return None if found is None else int(found)

    async def keep_place(self, place: int) -> None:
        await self._calls.bounded(self._redis.call(lambda redis: redis.set(_PLACE, place)))

    async def close(self) -> None:
        await self._redis.close()


_encode = msgspec.json.Encoder().encode
