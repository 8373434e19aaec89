"""Blocks of KV in Redis: a hash a session, a plain key for each block that a tenant's sessions share.

Names are raw bytes in a hash (half of hex, and `load` takes what `ask` gave), hex in a key. Each script and transaction
touches one hash tag, the session's or the tenant's; a batch is no transaction and may hold several, so a Redis Cluster
takes it too. While a cluster moves a slot, what it holds cannot be had or kept.

Values never pass through a script: Lua would copy them twice, at several times the cost (23 MB: 45 ms in place of 13,
Redis standing still meanwhile). So `ask` finds in a script which values have a length that can be ours, and `load` gets
those as they are. That a session was erased stands in another Redis, which evicts nothing: `save` looks there after it
has written, and takes back what may not be kept. Who erases marks it first, so one of the two finds it.

A cache: each read and each write of the socket is bounded by `kv.timeout_ms`. After a failure no call reaches Redis
until `probe`, which the thread makes while it has nothing else to do, has seen it answer: no request waits for a trial.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from redis.exceptions import (
    AskError,
    ExecAbortError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from shared.errors import StoreUnavailable
from shared.process.clock import monotonic_s
from shared.redis.client import is_demoted
from shared.settings import KvSettings
from shared.settings.redis import RedisAddress
from shared.telemetry.availability import Availability
from shared.wire.session_key import SessionKey, shared_key
from workers.kv.nodes import Batch, KvNodes, stream

# Scripts that Redis runs: each touches the keys of one hash tag, and no value. ARGV of both that ask: TTL in seconds,
# the longest value, the longest name, the most names.

# A session's names whose values may be ours; what cannot be is deleted.
# → [of the wrong type, too many, oversized, names…]
ASK_SESSION: Final = """
redis.call('EXPIRE', KEYS[1], ARGV[1])
local kind = redis.call('TYPE', KEYS[1])['ok']
if kind == 'none' then return {0, 0, 0} end
if kind ~= 'hash' then redis.call('DEL', KEYS[1]) return {1, 0, 0} end
if redis.call('HLEN', KEYS[1]) > tonumber(ARGV[4]) then redis.call('DEL', KEYS[1]) return {0, 1, 0} end
local found = {0, 0, 0}
for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do
  if #name > tonumber(ARGV[3]) or redis.call('HSTRLEN', KEYS[1], name) > tonumber(ARGV[2]) then
    redis.call('HDEL', KEYS[1], name)
    found[3] = found[3] + 1
  else
    found[#found + 1] = name
  end
end
return found
"""

# → for each key 1 where it is there and may be ours, else 0; behind them [of the wrong type, too many, oversized].
ASK_SHARED: Final = """
local found, wrong, oversized = {}, 0, 0
for i, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key)['ok']
  found[i] = 0
  if kind == 'none' then
  elseif kind ~= 'string' then
    redis.call('DEL', key)
    wrong = wrong + 1
  elseif redis.call('STRLEN', key) > tonumber(ARGV[2]) then
    redis.call('DEL', key)
    oversized = oversized + 1
  else
    redis.call('EXPIRE', key, ARGV[1])
    found[i] = 1
  end
end
found[#found + 1] = wrong
found[#found + 1] = 0
found[#found + 1] = oversized
return found
"""

# Before the values are written: room for them. ARGV: names to drop. → 1 where a key of the wrong type stood there.
OPEN: Final = """
local kind = redis.call('TYPE', KEYS[1])['ok']
if kind ~= 'none' and kind ~= 'hash' then redis.call('DEL', KEYS[1]) return 1 end
for _, name in ipairs(ARGV) do redis.call('HDEL', KEYS[1], name) end
return 0
"""


_LONGEST_NAME: Final = 64
_MOST_NAMES: Final = 4_096
_TRANSACTION_BYTES: Final = 4 << 20  # Redis serves nobody else while it executes one: about 2 ms
_DROPPED: Final = ("wrong_type", "too_many", "oversized")
_REPLY_BYTES: Final = 2 << 20  # two are under way
_RETRY_AFTER_MS: Final = 1_000.0  # after a failure Redis is left alone so long
_PROBE: Final = SessionKey("", "")


@dataclass(frozen=True, slots=True)
class Held:
    """The blocks that Redis has, by name: of the session all, of the shared ones those that were asked for."""

    session_names: frozenset[bytes] = frozenset()
    shared_names: frozenset[bytes] = frozenset()


class KvStore:
    """Used by one thread, except `available`. It connects at the first `probe`; until then it is not available.

    `marks` is the Redis with the marks of erased sessions. Values above `max_value_bytes` are never fetched.
    `count_dropped` gets the reason of each key or value that is deleted or skipped: wrong_type, too_many, oversized.
    Methods raise `StoreUnavailable` and nothing else. `tells`: log outages; of two stores on one Redis one does."""

    def __init__(
        self,
        redis: RedisAddress,
        kv: KvSettings,
        *,
        marks: RedisAddress,
        max_value_bytes: int,
        count_dropped: Callable[[str], None],
        tells: bool = True,
        retry_after_ms: float = _RETRY_AFTER_MS,
    ) -> None:
        self._nodes = KvNodes(redis, timeout_ms=kv.timeout_ms)
        self._marks = KvNodes(marks, timeout_ms=kv.timeout_ms)
        self._ttl_s = kv.ttl_s
        self._max_value_bytes = max_value_bytes
        self._count_dropped = count_dropped
        self._retry_after_s = retry_after_ms / 1_000
        self._redis = Availability("redis for kv", tells)
        self._writes = Availability("redis for kv's writes")  # Redis answers and takes none: full, or a replica
        self.available = False
        """Whether a call would reach Redis. Any thread may ask, and so spare itself a call that raises."""

    def probe_due_in_ms(self) -> float | None:
        """After so long without work the thread shall `probe`; None where there is no need."""
        return None if self.available else max(0.0, self._redis.retry_at_s - monotonic_s()) * 1_000

    def probe(self) -> bool:
        """Try Redis where that is due, with every command that a load needs; whether it is available."""
        if self.probe_due_in_ms() == 0.0:
            if self._redis.cause is not None:
                self._nodes.learn()  # another may serve in the place of the one that failed
            batch, key = Batch(self._nodes), _PROBE.of("kv")
            self._ask(batch, _PROBE, [key])
            batch.add(key, "HMGET", key, b"probe")
            batch.add(key, "MGET", key)
            try:
                self._execute(batch.execute)
            except StoreUnavailable:
                return False
            self.available = True
            self._redis.up()
        return self.available

    def ask(self, session: SessionKey, shared_names: Sequence[bytes]) -> Held:
        """Return what is there, in one round trip; all of it lives `kv.ttl_s` from now. What cannot be ours is
        deleted."""
        batch = self._batch()
        self._ask(batch, session, [shared_key(session.tenant, name) for name in shared_names])
        own, *rest = self._execute(batch.execute)
        _count(own[:3], self._count_dropped)
        shared: frozenset[bytes] = frozenset()
        if rest:
            flags = rest[0]
            _count(flags[-3:], self._count_dropped)
            shared = frozenset(name for name, flag in zip(shared_names, flags[:-3], strict=True) if flag)
        return Held(frozenset(own[3:]), shared)

    def load(
        self, session: SessionKey, names: Sequence[bytes], shared_names: Sequence[bytes] = ()
    ) -> Iterator[dict[bytes, bytes]]:
        """Yield the values of names that `ask` returned, shared ones first, without those that are gone. Redis sends a
        reply only once it is whole, so each has a few MiB, and the next is requested while one is used."""
        tenant, own = session.tenant, session.of("kv")
        yield from self._load(shared_names, lambda some: ["MGET", *[shared_key(tenant, name) for name in some]])
        yield from self._load(names, lambda some: ["HMGET", own, *some])

    def _load(
        self, names: Sequence[bytes], command: Callable[[Sequence[bytes]], list[str | bytes]]
    ) -> Iterator[dict[bytes, bytes]]:
        most = max(_REPLY_BYTES // self._max_value_bytes, 1)
        parts = [names[first : first + most] for first in range(0, len(names), most)]
        commands = [command(part) for part in parts]
        if commands:
            self._check_available()
            replies = stream(self._nodes, str(commands[0][1]), commands)
        for part in parts:
            (reply,) = self._execute(lambda: [next(replies)])
            if isinstance(reply, ResponseError):  # planted since it was asked
                self._count_dropped("wrong_type")
                return
            values = {name: value for name, value in zip(part, reply, strict=True) if value is not None}
            oversized = [name for name, value in values.items() if len(value) > self._max_value_bytes]
            for name in oversized:
                self._count_dropped("oversized")
                del values[name]
            yield values

    def save(
        self,
        session: SessionKey,
        blocks: Mapping[bytes, bytes],
        *,
        drop: Collection[bytes] = (),
        shared: Mapping[bytes, bytes] | None = None,
        generation: int,
    ) -> int | None:
        """Write the session's new blocks, drop others of it, write the shared ones that Redis lacks: one round trip.
        Return the bytes of values written; None if the turn's generation was erased: nothing of it stays. Raises
        without a call while Redis takes no writes."""
        batch = self._batch()
        if monotonic_s() < self._writes.retry_at_s:
            raise StoreUnavailable("Redis takes no writes; it is left alone with them for a while")
        parts = [*_parts(blocks)] or ([{}] if drop else [])
        for number, part in enumerate(parts):
            _write(batch, session.of("kv"), part, drop=() if number else drop, ttl_s=self._ttl_s)
        for name, value in (shared or {}).items():
            key = shared_key(session.tenant, name)
            batch.add(key, "SET", key, value, "EX", self._ttl_s, "NX")
        if not len(batch):
            return 0
        replies = self._execute(batch.execute, writing=True)
        for opened, *_ in [reply for reply in replies if isinstance(reply, list)]:  # those of EXEC
            if opened:
                self._count_dropped("wrong_type")
        taken = replies[len(replies) - len(shared or ()) :]
        written = sum(len(value) for value, ok in zip((shared or {}).values(), taken, strict=True) if ok)
        return written + _size(blocks) if self._stays(session, blocks, generation) else None

    def drop(self, session: SessionKey, names: Collection[bytes], shared_names: Collection[bytes] = ()) -> None:
        """Delete blocks that turned out to be something else."""
        batch = self._batch()
        if names:
            batch.add(session.of("kv"), "HDEL", session.of("kv"), *names)
        for name in shared_names:
            key = shared_key(session.tenant, name)
            batch.add(key, "DEL", key)
        self._execute(batch.execute)

    def close(self) -> None:
        """Hang up. No call may follow."""
        self.available = False
        self._nodes.close()
        self._marks.close()

    # --- what is sent

    def _ask(self, batch: Batch, session: SessionKey, shared_keys: Sequence[str]) -> None:
        limits = (self._ttl_s, self._max_value_bytes, _LONGEST_NAME, _MOST_NAMES)
        batch.add(session.of("kv"), "EVAL", ASK_SESSION, 1, session.of("kv"), *limits)
        if shared_keys:
            batch.add(shared_keys[0], "EVAL", ASK_SHARED, len(shared_keys), *shared_keys, *limits)

    def _stays(self, session: SessionKey, blocks: Mapping[bytes, bytes], generation: int) -> bool:
        """Return whether what was written may be kept: no later generation of its session has begun. Else, or where
        nobody can tell, it is taken back."""
        if not blocks:
            return True
        marks, key = Batch(self._marks), session.of("erased")
        marks.add(key, "GET", key)
        try:
            (erased,) = marks.execute()
        except (RedisError, OSError, ValueError) as error:
            erased = error
        if isinstance(erased, Exception) and is_demoted(erased):
            self._marks.learn()
        if erased is None or (isinstance(erased, bytes) and int(erased) <= generation):
            return True
        self.drop(session, list(blocks))
        if isinstance(erased, Exception):
            raise StoreUnavailable(f"nobody tells whether the session was erased: {erased}")
        return False

    # --- how it goes

    def _check_available(self) -> None:
        if not self.available:
            raise StoreUnavailable("Redis is left alone after a failure")

    def _batch(self) -> Batch:
        self._check_available()
        return Batch(self._nodes)

    def _execute(self, execute: Callable[[], list[Any]], *, writing: bool = False) -> list[Any]:
        """Execute commands; return the replies. A wrong type is the caller's to see, in place of the reply; every other
        error ends the call."""
        try:
            replies = execute()
        except (RedisError, OSError, ValueError) as error:  # ValueError: what speaks there is no Redis
            raise self._failed(error) from error
        refusals = [error for error in _errors(replies) if not str(error).startswith("WRONGTYPE")]
        if refusals:
            # Why a transaction was not executed stands before it.
            refusal = next((error for error in refusals if not isinstance(error, ExecAbortError)), refusals[0])
            if isinstance(refusal, AskError | TryAgainError):
                raise StoreUnavailable(f"Redis is moving what is asked for: {refusal}") from refusal
            raise (self._refused(refusal) if writing else self._failed(refusal)) from refusal
        if writing:
            self._writes.up()
        return replies

    def _failed(self, error: Exception) -> StoreUnavailable:
        self.available = False
        cause = str(error) or "no answer in time"
        self._redis.down(cause, retry_at_s=monotonic_s() + self._retry_after_s)
        return StoreUnavailable(f"Redis: {cause}")

    def _refused(self, error: Exception) -> StoreUnavailable:
        if is_demoted(error):
            self._nodes.learn()
        self._writes.down(str(error), retry_at_s=monotonic_s() + self._retry_after_s)
        return StoreUnavailable(f"Redis: {error}")


def _count(counts: Iterable[int], count_dropped: Callable[[str], None]) -> None:
    for reason, count in zip(_DROPPED, counts, strict=True):
        for _ in range(count):
            count_dropped(reason)


def _write(batch: Batch, key: str, blocks: Mapping[bytes, bytes], *, drop: Iterable[bytes], ttl_s: int) -> None:
    """Write in a transaction of its own within the batch: nothing is written without the time that it lives."""
    batch.add(key, "MULTI")
    batch.add(key, "EVAL", OPEN, 1, key, *drop)
    if blocks:
        batch.add(key, "HSET", key, *chain.from_iterable(blocks.items()))
    batch.add(key, "EXPIRE", key, ttl_s)
    batch.add(key, "EXEC")


def _parts(blocks: Mapping[bytes, bytes]) -> Iterator[dict[bytes, bytes]]:
    """In their order, each part's values together at most `_TRANSACTION_BYTES`, or a single larger one."""
    part: dict[bytes, bytes] = {}
    for name, value in blocks.items():
        if part and _size(part) + len(value) > _TRANSACTION_BYTES:
            yield part
            part = {}
        part[name] = value
    if part:
        yield part


def _size(blocks: Mapping[bytes, bytes]) -> int:
    return sum(map(len, blocks.values()))


def _errors(replies: Iterable[Any]) -> Iterator[Exception]:
    for reply in replies:
        if isinstance(reply, Exception):
            yield reply
        elif isinstance(reply, list):
            yield from _errors(reply)
