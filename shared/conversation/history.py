"""Keep what was said in Redis: the last turns of each conversation.

A cache: every call has a timeout, and after a failure no call is made for a while, so a Redis that is gone or hangs
costs one timeout at times and never an answer. A turn that was not written is retried for a while; a lost one is
counted.
"""

import asyncio
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any

import msgspec

from shared.conversation.erasures import MARKED_FOR_S
from shared.conversation.journal import (
    ADD_ENTRY,
    JOURNAL_KEYS,
    MAX_JOURNAL_BYTES,
    REMOVE_TURNS,
    EntryWriter,
    Journalled,
)
from shared.conversation.turn import Turn, decode_turn, encode_turn
from shared.conversation.turn_writing import TurnWriting
from shared.errors import StoreUnavailable
from shared.redis.calls import RETRY_AFTER_S, RedisCalls
from shared.redis.client import RedisClient
from shared.settings.redis import RedisAddress, RedisSettings
from shared.telemetry import metrics
from shared.wire.session_key import SessionKey

_MAX_TURNS = 50
# A question is noted as open, where others claim a place, for at most this long after its end.
_LATEST_RELEASE_MS = 1_000.0
# So far back the turn of one request is looked for: its record is read again within seconds.
_LOOK_BACK_TURNS = 8
_JOURNAL_FULL = 2

# A turn of a generation that was erased stays out of the conversation, however late it ends.
_ADD_TURN = """
local function is_erased()
  local erased = redis.call('GET', KEYS[2])
  return erased and tonumber(erased) > tonumber(ARGV[2])
end
local function add_turn()
  redis.call('RPUSH', KEYS[1], ARGV[1])
  redis.call('LTRIM', KEYS[1], ARGV[3], -1)
  redis.call('EXPIRE', KEYS[1], ARGV[4])
end
if is_erased() then return 0 end
"""
_APPEND = f"""{ADD_ENTRY}{_ADD_TURN}
add_turn()
if ARGV[5] and not add_entry(3, ARGV[5], ARGV[6]) then return {_JOURNAL_FULL} end
return 1
"""
# An entry of a journal whose number is not above the last one of its epoch was stored before.
_TAKE = f"""{_ADD_TURN}
if tonumber(redis.call('HGET', KEYS[3], ARGV[5]) or 0) >= tonumber(ARGV[6]) then return 0 end
redis.call('HSET', KEYS[3], ARGV[5], ARGV[6])
redis.call('EXPIRE', KEYS[3], ARGV[7])
add_turn()
return 1
"""
# An erasure's generation is later than every one before, whatever its clock says. A full Redis refuses a script's first
# write where that takes memory, so it is one that gives some back.
_ERASE = """
local before = tonumber(redis.call('GET', KEYS[1]) or 0) or 0
local begun = string.format('%.0f', math.max(before + 1, tonumber(ARGV[1])))
local function erase(last)
  redis.call('DEL', unpack(KEYS, 2, last))
  redis.call('SET', KEYS[1], begun, 'EX', ARGV[2])
end
"""
_ERASE_HERE = f"""{_ERASE}
erase(#KEYS)
return begun
"""
# At an edge; it tells the centre unless the centre has told it.
_ERASE_AT_EDGE = f"""{ADD_ENTRY}{REMOVE_TURNS}{_ERASE}
local at, told = #KEYS - {len(JOURNAL_KEYS) - 1}, ARGV[6] == '1'
if not told and is_full(at, ARGV[5]) then return false end
erase(at - 1)
remove_turns(at, ARGV[3])
if not told then add_entry(at, ARGV[3] .. ',"erased":' .. begun .. ARGV[4], ARGV[5]) end
return begun
"""


class History:
    """The conversations' turns. Methods return nothing useful rather than raise when Redis is away, except `delete`
    and `ping`, whose callers must know."""

    def __init__(
        self, settings: RedisSettings, *, kv: RedisAddress | None = None, journal_of: str | None = None
    ) -> None:
        """`kv`: where conversations' KV is kept, for who erases. `journal_of`: the tenant whose turns and erasures go
        into an edge's journal; None where there is no centre to tell."""
        self._settings = settings
        self._journal_of = journal_of
        self._calls = RedisCalls(settings, tells=True)
        self._redis = RedisClient(settings, timeout_ms=settings.timeout_ms)
        self._writing = TurnWriting(
            lambda session, turn, journal: self.append(session, turn, journal=journal),
            lambda: self._calls.bounded(self._redis.memory_used()),
            ttl_s=settings.history_ttl_s,
        )
        self._entries = EntryWriter()
        self._append = self._redis.script(_APPEND)
        self._take = self._redis.script(_TAKE)
        self._erase = self._redis.script(_ERASE_HERE if journal_of is None else _ERASE_AT_EDGE)
        self._kv_calls = RedisCalls(settings, tells=False)
        self._kv = None if kv is None else RedisClient(kv, timeout_ms=settings.timeout_ms)

    def missing(self) -> str | None:
        """Return what keeps Redis from having answered this process; None once it has."""
        return None if self._calls.seen else f"no Redis at {self._settings.shown_url}: {self._calls.problem}"

    async def turns(
        self,
        session: SessionKey,
        *,
        limit: int,
        before_unix_ms: float,
        request_id: str | None = None,
        generation: int = 0,
        concurrent: Collection[str] | None = None,
    ) -> list[Turn]:
        """Return the last `limit` turns asked before that moment, in the order they were asked; among them, and beyond
        the limit, the one of `request_id`, whenever it was asked, if it is one of the conversation's last. None where
        Redis is away. Of a turn written twice the first counts, unless it was cancelled and asked again. What was asked
        later may be answered sooner: an answer begun anew after a crash must not see it, but for its own. None is of an
        earlier `generation`: that was erased.

        `concurrent`: for the prompt of `request_id`, which was asked while those were open; leave out the turns that
        `open_at` finds open then. So the turns are the same whenever, and by whichever worker, they are read. None:
        leave out none."""
        # Turns are kept in the order of their ends, and counted in the order of their questions: one of the last by
        # question may stand anywhere.
        num_looked_at = _MAX_TURNS if limit > 0 else _LOOK_BACK_TURNS if request_id is not None else 0
        if num_looked_at <= 0:
            return []

        def belongs(turn: Turn) -> bool:
            if turn.request_id == request_id or turn.generation < generation:
                return turn.generation >= generation
            is_open = concurrent is not None and open_at(turn, before_unix_ms, request_id, concurrent)
            return turn.asked_unix_ms < before_unix_ms and not is_open

        on_their_way = self._writing.of(session)  # as before Redis was asked
        values = await self._last(session, num_looked_at)
        turns = _first_of_each(filter(belongs, [*_decoded(values), *on_their_way]))
        others = [turn for turn in turns if turn.request_id != request_id]
        too_many = others[: max(0, len(others) - limit)]
        return [turn for turn in turns if turn not in too_many]

    async def _last(self, session: SessionKey, num: int) -> list[bytes]:
        """Return the last turns that Redis has; none if it is away."""
        key = session.of("turns")
        try:
            # Without decode_responses redis-py hands out bytes, and says str.
            found: list[Any] = await self._calls.bounded(self._redis.call(lambda redis: redis.lrange(key, -num, -1)))
        except StoreUnavailable:
            metrics.history_unavailable.labels("read").inc()
            return []
        return found

    def remember(self, session: SessionKey, turn: Turn, *, journal: bool = True) -> None:
        """Append without waiting; into an edge's journal too, unless the centre has it. This process reads the turn
        immediately: the conversation's next question comes to this worker while the group is stable."""
        self._writing.start(session, turn, journal=journal)

    def forget(self, session: SessionKey, generation: int) -> None:
        """Drop what this process is writing of earlier generations: they were erased."""
        self._writing.forget(session, generation)

    async def append(self, session: SessionKey, turn: Turn, *, journal: bool = False) -> bool | None:
        """Remember a turn; False where its generation was erased, None where Redis is away."""
        keys, values = self._turn_args(session, turn)
        if journal and session.tenant == self._journal_of:
            keys += JOURNAL_KEYS
            values += [self._entries.turn(session, turn), MAX_JOURNAL_BYTES]
        try:
            kept = await self._calls.bounded(self._append(keys, values))
        except StoreUnavailable:
            return None
        if kept == _JOURNAL_FULL:
            metrics.history_unavailable.labels("journal").inc()
        return bool(kept)

    async def take(self, session: SessionKey, turn: Turn, entry: Journalled) -> bool:
        """Append a turn from an edge's journal, unless it was appended or erased before; return whether it is appended.
        Raises `StoreUnavailable`."""
        keys, values = self._turn_args(session, turn)
        if not entry.epoch:
            return bool(await self._calls.bounded(self._append(keys, values)))
        numbered = [*values, entry.epoch, entry.sequence, MARKED_FOR_S]
        return bool(await self._calls.bounded(self._take([*keys, session.of("taken")], numbered)))

    def _turn_args(self, session: SessionKey, turn: Turn) -> tuple[list[str], list[Any]]:
        values = [encode_turn(turn), turn.generation, -_MAX_TURNS, self._settings.history_ttl_s]
        return [session.of("turns"), session.of("erased")], values

    async def delete(self, session: SessionKey, *, generation: int, journal: bool = True) -> int:
        """Forget a conversation, what the model has computed of it, what was being answered or rated in it, and that
        its customer waits for a person or an answer. The generation that begins: this one, or the one that follows
        Redis' own. Raises `StoreUnavailable`."""
        keys = [session.of(what) for what in ("erased", "turns", "handoff", "running", "bad_answers", "place")]
        await self._calls.bounded(
            self._redis.call(lambda redis: redis.delete(*keys[1:]))
        )  # whatever becomes of the rest
        values: list[Any] = [generation, MARKED_FOR_S]
        if self._journal_of is not None:
            keys += JOURNAL_KEYS
            told = not journal or session.tenant != self._journal_of
            values += [*self._entries.erasure(session), 2 * MAX_JOURNAL_BYTES, int(told)]
        erased = await self._calls.bounded(self._erase(keys, values))
        if erased is None:
            metrics.history_unavailable.labels("journal").inc()
            raise StoreUnavailable("the journal is full, so the centre could not be told of the erasure")
        begun = int(erased)
        self.forget(session, begun)
        if self._kv is not None:
            kv = session.of("kv")
            await self._kv_calls.bounded(self._kv.call(lambda redis: redis.delete(kv)))
        return begun

    async def forget_all(self, tenant: str) -> None:
        """Forget what was said in every conversation of a tenant, where one Redis holds all of it. Raises
        `StoreUnavailable`."""

        async def delete(redis: Any) -> None:
            for what in ("turns", "kv", "bad_answers"):
                async for key in redis.scan_iter(match=f"replyline:{{{tenant}/*}}:{what}", count=1_000):
                    await redis.delete(key)

        await self._calls.bounded(self._redis.call(delete))

    async def generation(self, session: SessionKey) -> int | None:
        """Return the conversation's generation, 0 where it was not erased lately; None where Redis is away."""
        try:
            key = session.of("erased")
            generation = await self._calls.bounded(self._redis.call(lambda redis: redis.get(key)))
        except StoreUnavailable:
            return None
        return int(generation or 0)

    async def ping(self) -> None:
        """Ask now, even if Redis is being left alone. Raises `StoreUnavailable`."""
        await self._calls.bounded(self._redis.ping(), at_once=True)

    async def await_first_answer(self) -> None:
        """Ask until Redis answers for the first time."""
        while not self._calls.seen:
            try:
                await self.ping()
            except StoreUnavailable:
                await asyncio.sleep(RETRY_AFTER_S)

    async def close(self) -> None:
        """Write what is on its way; what Redis does not take now is lost."""
        if self._writing:
            with suppress(StoreUnavailable):
                await self.ping()
        await self._writing.close()
        await self._redis.close()
        if self._kv is not None:
            await self._kv.close()


def open_at(turn: Turn, asked_unix_ms: float, request_id: str | None, concurrent: Collection[str]) -> bool:
    """Return whether a turn's answer was open when `request_id` was asked, beside the questions `concurrent`.

    What the turn's worker saw is certain. What the gateway saw counts unless the turn had ended long before: a gateway
    that dies, or finds no Redis, releases nothing. If neither names the other, the clocks decide: a gateway ends an
    answer that is cancelled or at its deadline, and a worker that was held up writes the turn later. Any other answer
    ends at its worker first, so only a moment far after the question counts."""
    ended_unix_ms = turn.ended_unix_ms
    if request_id in turn.concurrent or ended_unix_ms is None:
        return request_id in turn.concurrent or turn.request_id in concurrent
    if turn.request_id in concurrent:
        return ended_unix_ms + _LATEST_RELEASE_MS >= asked_unix_ms
    by_gateway = turn.status == "cancelled" or turn.reason == "deadline"
    return ended_unix_ms > asked_unix_ms + (0.0 if by_gateway else _LATEST_RELEASE_MS)


def _first_of_each(turns: Iterable[Turn]) -> list[Turn]:
    """Return one turn of each request, in prompts' order: the first that was written, unless that was
    cancelled and asked again."""
    chosen: dict[str, Turn] = {}
    for turn in turns:
        earlier = chosen.get(turn.request_id)
        if earlier is None or earlier.status == "cancelled":
            chosen[turn.request_id] = turn
    return sorted(chosen.values(), key=_in_order)


def _in_order(turn: Turn) -> tuple[int, str]:
    """Return the key that sorts turns as prompts have them: by when they were asked; those of one millisecond by their
    ids, which no worker's pace changes."""
    return turn.asked_unix_ms, turn.request_id


def _decoded(values: list[bytes]) -> list[Turn]:
    turns: list[Turn] = []
    for value in values:
        try:
            turns.append(decode_turn(value))
        except msgspec.DecodeError:
            continue  # written by another version: this turn is forgotten
    return turns
