"""Store the last turns of each conversation in Redis.

This is a cache: every call has a timeout, and after a failure no call is made for a while, so an outage of Redis costs
an occasional timeout and never an answer. A failed write is retried for a while; a turn that is lost is counted. A slow
Redis is waited for, since a conversation whose turns are not read would look like a new one.
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
from shared.process.clock import monotonic_s
from shared.redis.calls import RETRY_AFTER_S, RedisCalls
from shared.redis.client import RedisClient
from shared.settings.redis import RedisAddress, RedisSettings
from shared.telemetry import metrics
from shared.wire.session_key import SessionKey

_MAX_TURNS = 50
# The gateway releases a question from the conversation's open ones at most this long after its end.
_LATEST_RELEASE_MS = 1_000.0
# The turn of one request is searched in this many last turns; its record is read again within seconds.
_LOOK_BACK_TURNS = 8
_LOOK_S = 0.02
_WRITE_LIMIT_S = 1.0  # nothing waits for a write
_JOURNAL_FULL = 2

# A turn of an erased generation is not appended, even if it ends much later.
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
# The try before may have been applied, and only its reply be late or lost.
_APPEND = f"""{ADD_ENTRY}{_ADD_TURN}
if ARGV[5] == '1' then
  for _, each in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
    if each == ARGV[1] then return 1 end
  end
end
add_turn()
if ARGV[6] and not add_entry(3, ARGV[6], ARGV[7]) then return {_JOURNAL_FULL} end
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
# Each erasure's generation is greater than the last, even if the clock was set back. A full Redis rejects a script's
# first write if that needs memory, so the first write is one that frees some.
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
# At an edge: adds the erasure to the journal for the centre, unless it came from the centre.
_ERASE_AT_EDGE = f"""{ADD_ENTRY}{REMOVE_TURNS}{_ERASE}
local at, told = #KEYS - {len(JOURNAL_KEYS) - 1}, ARGV[6] == '1'
if not told and is_full(at, ARGV[5]) then return false end
erase(at - 1)
remove_turns(at, ARGV[3])
local after = string.format(',"before":%.0f', before)
if not told then add_entry(at, ARGV[3] .. ',"erased":' .. begun .. after .. ARGV[4], ARGV[5]) end
return begun
"""


class TurnsMissing(StoreUnavailable):
    """Redis did not answer in time, or `answered` without the turn that its reader knows to exist. `found` are the
    others."""

    def __init__(self, found: list[Turn], *, answered: bool) -> None:
        super().__init__("Redis did not return the conversation's turns")
        self.found, self.answered = found, answered


class History:
    """The conversations' turns."""

    def __init__(
        self, settings: RedisSettings, *, kv: RedisAddress | None = None, journal_of: str | None = None
    ) -> None:
        """Create the clients.

        Args:
            settings: the Redis of the turns.
            kv: the Redis of the conversations' KV, for a process that erases conversations.
            journal_of: the tenant whose turns and erasures also go into an edge's journal; None if there is no centre.
        """
        self._settings = settings
        self._journal_of = journal_of
        self._calls = RedisCalls(settings, logs_outages=True)
        self._redis = RedisClient(settings, timeout_ms=settings.timeout_ms)
        self._writing = TurnWriting(
            lambda session, turn, journal, again: self.append(session, turn, journal=journal, again=again),
            lambda: self._calls.bounded(self._redis.memory_used()),
            ttl_s=settings.history_ttl_s,
        )
        self._entries = EntryWriter()
        self._append = self._redis.script(_APPEND)
        self._take = self._redis.script(_TAKE)
        self._erase = self._redis.script(_ERASE_HERE if journal_of is None else _ERASE_AT_EDGE)
        self._kv_calls = RedisCalls(settings, logs_outages=False)
        self._kv = None if kv is None else RedisClient(kv, timeout_ms=settings.timeout_ms)

    def missing(self) -> str | None:
        """Return why Redis has not answered this process yet; None once it has."""
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
        after: str | None = None,
        patient_s: float = 0.0,
    ) -> list[Turn]:
        """Return the last turns of the conversation that belong into a request's prompt, in the order of their
        questions.

        If a turn was written twice, the first one counts, unless it was cancelled and asked again: a worker that missed
        the cancel answers the same asking in full, maybe after the next question. A turn that counts and has no text
        was cancelled; it is left out.

        Args:
            session: the conversation.
            limit: maximum number of turns.
            before_unix_ms: only turns asked before this time, since a question asked later may be answered earlier, and
                an answer that is computed again after a crash must not see it.
            request_id: also return the turn of this request, in addition to `limit`, if it is among the last ones.
            generation: only turns of this generation or later; earlier ones were erased.
            concurrent: the questions that were open when `request_id` was asked. Turns that `open_at` finds open at
                that time are left out, so that every worker gets the same turns at any time. None to leave out none.
            after: a request whose turn is known to exist, perhaps not in Redis yet: its process may still write it.
            patient_s: how long to wait for a slow Redis, and for the turn of `after`.

        Raises:
            TurnsMissing: Redis did not answer, or lacks the turn of `after`.
        """
        # Turns are stored in the order of their ends but selected in the order of their questions, so all of them are
        # read.
        num_looked_at = _MAX_TURNS if limit > 0 else _LOOK_BACK_TURNS if request_id is not None else 0
        if num_looked_at <= 0:
            return []

        def may_count(turn: Turn) -> bool:
            is_before = turn.asked_unix_ms < before_unix_ms or turn.request_id == request_id
            return is_before and turn.generation >= generation

        def belongs(turn: Turn) -> bool:
            is_open = concurrent is not None and open_at(turn, before_unix_ms, request_id, concurrent)
            return bool(turn.output_text) and (turn.request_id == request_id or not is_open)

        missing: TurnsMissing | None = None
        try:
            stored = await self._last(session, num_looked_at, after, patient_s)
        except TurnsMissing as error:
            stored, missing = error.found, error
        turns = list(filter(belongs, _first_of_each(filter(may_count, stored))))
        others = [turn for turn in turns if turn.request_id != request_id]
        too_many = others[: max(0, len(others) - limit)]
        turns = [turn for turn in turns if turn not in too_many]
        if missing is not None:
            raise TurnsMissing(turns, answered=missing.answered)
        return turns

    async def _last(self, session: SessionKey, num: int, after: str | None, patient_s: float) -> list[Turn]:
        """Return the last turns that are stored or being written. Raises `TurnsMissing`."""
        key, until_s = session.redis_key("turns"), monotonic_s() + patient_s
        while True:
            # read before the call to Redis, so that a turn is in at least one of the two
            on_their_way = self._writing.unwritten(session)
            try:
                # redis-py declares str, but returns bytes without decode_responses
                values: list[Any] = await self._calls.patient(
                    lambda: self._redis.call(lambda redis: redis.lrange(key, -num, -1)), until_s - monotonic_s()
                )
            except StoreUnavailable:
                metrics.history_unavailable.labels("read").inc()
                raise TurnsMissing(on_their_way, answered=False) from None
            turns = [*_decoded(values), *on_their_way]
            if after is None or any(turn.request_id == after for turn in turns):
                return turns
            if monotonic_s() >= until_s:
                raise TurnsMissing(turns, answered=True)
            await asyncio.sleep(_LOOK_S)

    def remember(self, session: SessionKey, turn: Turn, *, journal: bool = True) -> None:
        """Append a turn in the background.

        This process returns the turn from `turns` immediately: a conversation's next question comes to the same worker
        while the consumer group is stable.

        Args:
            session: the conversation.
            turn: the turn to append.
            journal: also append it to an edge's journal; False if the centre already has it.
        """
        self._writing.start(session, turn, journal=journal)

    def forget(self, session: SessionKey, generation: int) -> None:
        """Drop unwritten turns of earlier generations, which were erased."""
        self._writing.forget(session, generation)

    async def append(
        self, session: SessionKey, turn: Turn, *, journal: bool = False, again: bool = False
    ) -> bool | None:
        """Append a turn; return False if its generation was erased, None during an outage. `again`: an earlier try has
        failed."""
        keys, values = self._turn_args(session, turn)
        values.append(int(again))
        if journal and session.tenant == self._journal_of:
            keys += JOURNAL_KEYS
            values += [self._entries.turn(session, turn), MAX_JOURNAL_BYTES]
        try:
            kept = await self._calls.bounded(self._append(keys, values), limit_s=_WRITE_LIMIT_S)
        except StoreUnavailable:
            return None
        if kept == _JOURNAL_FULL:
            metrics.history_unavailable.labels("journal").inc()
        return bool(kept)

    async def take(self, session: SessionKey, turn: Turn, entry: Journalled) -> bool:
        """Append a turn from an edge's journal, unless it was appended or erased before; return whether it is
        appended. Raises `StoreUnavailable`."""
        keys, values = self._turn_args(session, turn)
        if not entry.epoch:
            return bool(await self._calls.bounded(self._append(keys, values)))
        numbered = [*values, entry.epoch, entry.sequence, MARKED_FOR_S]
        return bool(await self._calls.bounded(self._take([*keys, session.redis_key("taken")], numbered)))

    async def was_taken(self, session: SessionKey, entry: Journalled) -> bool:
        """Return whether an entry of an edge's journal was taken before. Raises `StoreUnavailable`."""
        key = session.redis_key("taken")
        last: Any = await self._calls.bounded(self._redis.call(lambda redis: redis.hget(key, entry.epoch)))
        return int(last or 0) >= entry.sequence > 0

    async def note_taken(self, session: SessionKey, entry: Journalled) -> None:
        """Record an erasure of an edge's journal as taken. Raises `StoreUnavailable`."""
        key = session.redis_key("taken")

        async def write(redis: Any) -> None:
            await redis.hset(key, entry.epoch, entry.sequence)
            await redis.expire(key, MARKED_FOR_S)

        if entry.epoch:
            await self._calls.bounded(self._redis.call(write))

    def _turn_args(self, session: SessionKey, turn: Turn) -> tuple[list[str], list[Any]]:
        values = [encode_turn(turn), turn.generation, -_MAX_TURNS, self._settings.history_ttl_s]
        return [session.redis_key("turns"), session.redis_key("erased")], values

    async def delete(self, session: SessionKey, *, generation: int, journal: bool = True) -> int:
        """Erase a conversation: its turns, KV, bad answers, hand-off, running answers and claimed partition.

        Returns:
            The generation that begins: `generation`, or the one after the stored one if that is not earlier.

        Raises:
            StoreUnavailable: Redis did not answer. Part of the conversation may be erased.
        """
        keys = [session.redis_key(what) for what in ("erased", "turns", "handoff", "running", "bad_answers", "place")]
        await self._calls.bounded(
            self._redis.call(lambda redis: redis.delete(*keys[1:]))
        )  # first, even if the rest fails
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
            kv = session.redis_key("kv")
            await self._kv_calls.bounded(self._kv.call(lambda redis: redis.delete(kv)))
        return begun

    async def forget_all(self, tenant: str) -> None:
        """Delete the content of every conversation of a tenant, if a single Redis stores it.

        Raises:
            StoreUnavailable: Redis did not answer.
        """

        async def delete(redis: Any) -> None:
            for what in ("turns", "kv", "bad_answers"):
                async for key in redis.scan_iter(match=f"replyline:{{{tenant}/*}}:{what}", count=1_000):
                    await redis.delete(key)

        await self._calls.bounded(self._redis.call(delete))

    async def generation(self, session: SessionKey) -> int:
        """Return the conversation's generation: 0 if it was not erased recently. Raises `StoreUnavailable`."""
        key = session.redis_key("erased")
        return int(await self._calls.bounded(self._redis.call(lambda redis: redis.get(key))) or 0)

    async def ping(self) -> None:
        """Ping Redis, even during the pause after a failure.

        Raises:
            StoreUnavailable: Redis did not answer.
        """
        await self._calls.bounded(self._redis.ping(), at_once=True)

    async def await_first_answer(self) -> None:
        """Ping Redis until it answers for the first time."""
        while not self._calls.seen:
            try:
                await self.ping()
            except StoreUnavailable:
                await asyncio.sleep(RETRY_AFTER_S)

    async def close(self) -> None:
        """Write the remaining turns. Those that Redis does not accept now are lost."""
        if self._writing:
            with suppress(StoreUnavailable):
                await self.ping()
        await self._writing.close()
        await self._redis.close()
        if self._kv is not None:
            await self._kv.close()


def open_at(turn: Turn, asked_unix_ms: float, request_id: str | None, concurrent: Collection[str]) -> bool:
    """Return whether a turn's answer was still open when `request_id` was asked.

    If the turn names the request, its worker saw both open, which is certain. If the request names the turn, the
    gateway saw it open, which counts unless the turn had ended long before: a gateway that died or had no Redis
    releases nothing. If neither names the other, the clocks decide: a gateway ends a cancelled answer or one at its
    deadline, and a slow worker writes that turn later. Any other answer ends at its worker first, so only an end long
    after the question counts. An end before the turn's own question is unknown: the worker's clock was set back.

    Args:
        turn: the turn in question.
        asked_unix_ms: when the request was asked.
        request_id: the request.
        concurrent: the questions that were open when the request was asked.
    """
    ended_unix_ms = turn.ended_unix_ms
    if request_id in turn.concurrent or ended_unix_ms is None or ended_unix_ms < turn.asked_unix_ms:
        return request_id in turn.concurrent or turn.request_id in concurrent
    if turn.request_id in concurrent:
        return ended_unix_ms + _LATEST_RELEASE_MS >= asked_unix_ms
    by_gateway = turn.status == "cancelled" or turn.reason == "deadline"
    return ended_unix_ms > asked_unix_ms + (0.0 if by_gateway else _LATEST_RELEASE_MS)


def first_counts(first: Turn, later: Turn) -> bool:
    """Return whether the first turn of a request counts, not one that was written later: unless it was cancelled, and
    the question was asked again, or a gateway answered from the FAQ and cancelled it at its worker."""
    is_again = later.asked_unix_ms != first.asked_unix_ms
    return first.status != "cancelled" or not (is_again or later.origin == "gateway")


def _first_of_each(turns: Iterable[Turn]) -> list[Turn]:
    """Return one turn for each request, the one that counts, in prompt order."""
    chosen: dict[str, Turn] = {}
    for turn in turns:
        earlier = chosen.get(turn.request_id)
        if earlier is None or not first_counts(earlier, turn):
            chosen[turn.request_id] = turn
    return sorted(chosen.values(), key=_in_order)


def _in_order(turn: Turn) -> tuple[int, str]:
    """Return the key that sorts turns for a prompt: by the time of the question, then by id, so that all workers
    agree."""
    return turn.asked_unix_ms, turn.request_id


def _decoded(values: list[bytes]) -> list[Turn]:
    turns: list[Turn] = []
    for value in values:
        try:
            turns.append(decode_turn(value))
        except msgspec.DecodeError:
            continue  # written by another release; the turn is left out
    return turns
