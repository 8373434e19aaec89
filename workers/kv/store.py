"""Blocks of KV in Redis: a hash for each session, and a plain key for each block that a tenant's sessions share.

Names are raw bytes in a hash (half as long as hex, and `load` takes what `ask` returned), hex in a key. Each script and
transaction uses one hash tag, the session's or the tenant's; a batch is not a transaction and may use several, so it
works with a Redis Cluster too. While a cluster moves a slot, its blocks can be neither read nor written.

Values never pass through a script: Lua would copy them twice, at several times the cost (23 MB: 45 ms instead of 13,
during which Redis serves no other client). So `ask` finds in a script which values have a valid length, and `load`
reads those directly. The marks of erased sessions are in another Redis, which evicts nothing: `save` reads the mark
after writing, and deletes what may not be stored. An erasure writes the mark first, so one of the two finds the other.

This is a cache: each read and write of a socket is limited by `kv.timeout_ms`. After a failure no call reaches Redis
until `probe`, which the thread makes while it is idle, has got an answer: no request waits for such an attempt.
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

# Redis scripts: each uses the keys of one hash tag and reads no value. ARGV of both ask scripts: TTL in seconds, the
# longest value, the longest name, the most names.

# Returns the session's names whose values have a valid length, and deletes the others. → [wrong type, too many,
# oversized, names…]
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

# → for each key 1 if it exists and is valid, else 0; then [wrong type, too many, oversized]
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

# Runs before the values are written, to make room. ARGV: names to drop. → 1 if the key had the wrong type
OPEN: Final = """
local kind = redis.call('TYPE', KEYS[1])['ok']
if kind ~= 'none' and kind ~= 'hash' then redis.call('DEL', KEYS[1]) return 1 end
for _, name in ipairs(ARGV) do redis.call('HDEL', KEYS[1], name) end
return 0
"""


_LONGEST_NAME: Final = 64
_MOST_NAMES: Final = 4_096
_TRANSACTION_BYTES: Final = 4 << 20  # Redis serves no other client while it executes one: about 2 ms
_DROPPED: Final = ("wrong_type", "too_many", "oversized")
_REPLY_BYTES: Final = 2 << 20  # two are in flight
_RETRY_AFTER_MS: Final = 1_000.0  # pause after a failure
_PROBE: Final = SessionKey("", "")


@dataclass(frozen=True, slots=True)
class Held:
    """The names of blocks that Redis has: all of the session's, and the shared ones that were asked for."""

    session_names: frozenset[bytes] = frozenset()
    shared_names: frozenset[bytes] = frozenset()


class KvStore:
    """The store, used by one thread except for `available`. It connects at the first `probe` and is not available
    before.

    Methods raise `StoreUnavailable` and nothing else.

    Args:
        redis: the Redis of the KV.
        kv: limits.
        marks: the Redis with the marks of erased sessions.
        max_value_bytes: larger values are never fetched.
        count_dropped: called with the reason of each key or value that is deleted or skipped: wrong_type, too_many,
            oversized.
        logs_outages: log outages; of two stores on one Redis only one does.
        retry_after_ms: pause after a failure.
    """

    def __init__(
        self,
        redis: RedisAddress,
        kv: KvSettings,
        *,
        marks: RedisAddress,
        max_value_bytes: int,
        count_dropped: Callable[[str], None],
        logs_outages: bool = True,
        retry_after_ms: float = _RETRY_AFTER_MS,
    ) -> None:
        self._nodes = KvNodes(redis, timeout_ms=kv.timeout_ms)
        self._marks = KvNodes(marks, timeout_ms=kv.timeout_ms)
        self._ttl_s = kv.ttl_s
        self._max_value_bytes = max_value_bytes
        self._count_dropped = count_dropped
        self._retry_after_s = retry_after_ms / 1_000
        self._redis = Availability("redis for kv", logs_outages)
        # Redis answers but rejects writes: it is full, or a replica
        self._writes = Availability("redis for kv's writes")
        self.available = False
        """Whether a call would reach Redis. Any thread may read this to avoid a call that raises."""

    def probe_due_in_ms(self) -> float | None:
        """Return the time after which the idle thread must call `probe`; None if it need not."""
        return None if self.available else max(0.0, self._redis.retry_at_s - monotonic_s()) * 1_000

    def probe(self) -> bool:
        """Try Redis with every command that a load needs, if that is due; return whether it is available."""
        if self.probe_due_in_ms() == 0.0:
            if self._redis.cause is not None:
                self._nodes.learn()  # another server may have replaced the failed one
            batch, key = Batch(self._nodes), _PROBE.redis_key("kv")
            self._ask(batch, _PROBE, [key])
            batch.add(key, "HMGET", key, b"probe")
            batch.add(key, "MGET", key)
            try:
                self._execute(batch.execute)
            except StoreUnavailable:
                return False
            self.available = True
            self._redis.mark_up()
        return self.available

    def ask(self, session: SessionKey, shared_names: Sequence[bytes]) -> Held:
        """Return the stored names in one round trip, and renew their TTL. Invalid values are deleted."""
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
        """Yield the values of names that `ask` returned, shared ones first; missing ones are left out.

        Redis sends a reply only when it is complete, so each has a few MiB, and the next is requested while one is
        used.
        """
        tenant, own = session.tenant, session.redis_key("kv")
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
            if isinstance(reply, ResponseError):  # the key was changed after `ask`
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
        """Write the session's new blocks, drop others, and write missing shared ones, in one round trip.

        While Redis rejects writes, this raises without a call.

        Args:
            session: the conversation.
            blocks: its new blocks.
            drop: names of its blocks to delete.
            shared: blocks shared by the tenant's conversations.
            generation: the conversation's generation.

        Returns:
            The bytes of the values written; None if the generation was erased, and then nothing remains.
        """
        batch = self._batch()
        if monotonic_s() < self._writes.retry_at_s:
            raise StoreUnavailable("Redis rejects writes; they are paused for a moment")
        parts = [*_parts(blocks)] or ([{}] if drop else [])
        for number, part in enumerate(parts):
            _write(batch, session.redis_key("kv"), part, drop=() if number else drop, ttl_s=self._ttl_s)
        for name, value in (shared or {}).items():
            key = shared_key(session.tenant, name)
            batch.add(key, "SET", key, value, "EX", self._ttl_s, "NX")
        if not len(batch):
            return 0
        replies = self._execute(batch.execute, writing=True)
        for opened, *_ in [reply for reply in replies if isinstance(reply, list)]:  # the replies of EXEC
            if opened:
                self._count_dropped("wrong_type")
        taken = replies[len(replies) - len(shared or ()) :]
        written = sum(len(value) for value, ok in zip((shared or {}).values(), taken, strict=True) if ok)
        return written + _size(blocks) if self._stays(session, blocks, generation) else None

    def drop(self, session: SessionKey, names: Collection[bytes], shared_names: Collection[bytes] = ()) -> None:
        """Delete invalid blocks."""
        batch = self._batch()
        if names:
            batch.add(session.redis_key("kv"), "HDEL", session.redis_key("kv"), *names)
        for name in shared_names:
            key = shared_key(session.tenant, name)
            batch.add(key, "DEL", key)
        self._execute(batch.execute)

    def close(self) -> None:
        """Close the connections. No call may follow."""
        self.available = False
        self._nodes.close()
        self._marks.close()

    # --- commands

    def _ask(self, batch: Batch, session: SessionKey, shared_keys: Sequence[str]) -> None:
        limits = (self._ttl_s, self._max_value_bytes, _LONGEST_NAME, _MOST_NAMES)
        batch.add(session.redis_key("kv"), "EVAL", ASK_SESSION, 1, session.redis_key("kv"), *limits)
        if shared_keys:
            batch.add(shared_keys[0], "EVAL", ASK_SHARED, len(shared_keys), *shared_keys, *limits)

    def _stays(self, session: SessionKey, blocks: Mapping[bytes, bytes], generation: int) -> bool:
        """Return whether the written blocks may stay: no later generation of the session has begun.

        Otherwise, or if that cannot be read, they are deleted.
        """
        if not blocks:
            return True
        marks, key = Batch(self._marks), session.redis_key("erased")
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
            raise StoreUnavailable(f"cannot read whether the session was erased: {erased}")
        return False

    # --- results

    def _check_available(self) -> None:
        if not self.available:
            raise StoreUnavailable("Redis is not called for a moment after a failure")

    def _batch(self) -> Batch:
        self._check_available()
        return Batch(self._nodes)

    def _execute(self, execute: Callable[[], list[Any]], *, writing: bool = False) -> list[Any]:
        """Execute commands and return the replies. A WRONGTYPE error is returned as a reply; any other error raises."""
        try:
            replies = execute()
        except (RedisError, OSError, ValueError) as error:  # ValueError: the server is not Redis
            raise self._failed(error) from error
        refusals = [error for error in _errors(replies) if not str(error).startswith("WRONGTYPE")]
        if refusals:
            # The error before an EXECABORT says why the transaction was not executed.
            refusal = next((error for error in refusals if not isinstance(error, ExecAbortError)), refusals[0])
            if isinstance(refusal, AskError | TryAgainError):
                raise StoreUnavailable(f"Redis is moving the requested keys: {refusal}") from refusal
            raise (self._refused(refusal) if writing else self._failed(refusal)) from refusal
        if writing:
            self._writes.mark_up()
        return replies

    def _failed(self, error: Exception) -> StoreUnavailable:
        self.available = False
        cause = str(error) or "no answer in time"
        self._redis.mark_down(cause, retry_at_s=monotonic_s() + self._retry_after_s)
        return StoreUnavailable(f"Redis: {cause}")

    def _refused(self, error: Exception) -> StoreUnavailable:
        if is_demoted(error):
            self._nodes.learn()
        self._writes.mark_down(str(error), retry_at_s=monotonic_s() + self._retry_after_s)
        return StoreUnavailable(f"Redis: {error}")


def _count(counts: Iterable[int], count_dropped: Callable[[str], None]) -> None:
    for reason, count in zip(_DROPPED, counts, strict=True):
        for _ in range(count):
            count_dropped(reason)


def _write(batch: Batch, key: str, blocks: Mapping[bytes, bytes], *, drop: Iterable[bytes], ttl_s: int) -> None:
    """Write in a separate transaction within the batch, so that no value is written without its TTL."""
    batch.add(key, "MULTI")
    batch.add(key, "EVAL", OPEN, 1, key, *drop)
    if blocks:
        batch.add(key, "HSET", key, *chain.from_iterable(blocks.items()))
    batch.add(key, "EXPIRE", key, ttl_s)
    batch.add(key, "EXEC")


def _parts(blocks: Mapping[bytes, bytes]) -> Iterator[dict[bytes, bytes]]:
    """Split blocks in order into parts of at most `_TRANSACTION_BYTES`, or a single larger block."""
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
