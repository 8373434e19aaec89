"""Store encoded blocks, or handles to them, in this process's memory, and evict the least recently used. Pure.

Each block belongs to an owner, a conversation or a tenant, and is dropped with it. Operations take constant time,
except `erase`, which takes time proportional to the owner's blocks.
"""

from collections import OrderedDict
from collections.abc import Callable, Sized
from typing import Final, Generic, NamedTuple, TypeVar

ENTRY_BYTES: Final = 400
"""Memory of an entry besides its value, measured on CPython 3.11, so that many small values stay within the budget."""


V = TypeVar("V", bound=Sized)


class _CachedValue(NamedTuple, Generic[V]):
    value: V
    owner: str
    used_unix_ms: float


class HostCache(Generic[V]):
    """A cache of at most `max_bytes`, owned by one thread.

    Args:
        max_bytes: limit for the values and `ENTRY_BYTES` each.
        ttl_s: a value not used for this long is dropped.
        evicted: called with `(name, value, owner)` of each value that is removed to make room.
        dropped: called with each value that is removed for any reason.
    """

    __slots__ = ("_dropped", "_entries", "_evicted", "_max_bytes", "_owners", "_ttl_ms", "num_bytes")

    def __init__(
        self,
        *,
        max_bytes: int,
        ttl_s: float,
        evicted: Callable[[bytes, V, str], None] = lambda _name, _value, _owner: None,
        dropped: Callable[[V], None] = lambda _value: None,
    ) -> None:
        self._evicted, self._dropped = evicted, dropped
        self._max_bytes = max_bytes
        self._ttl_ms = ttl_s * 1_000
        self._entries: OrderedDict[bytes, _CachedValue[V]] = OrderedDict()  # least recently used first
        self._owners: dict[str, set[bytes]] = {}
        self.num_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def max_bytes(self) -> int:
        return self._max_bytes

    def __contains__(self, name: object) -> bool:
        """Return whether a value is stored, possibly expired. This does not count as a use."""
        return name in self._entries

    def get(self, name: bytes, now_unix_ms: float) -> V | None:
        """Return the value and mark it as the most recently used; None if it is not stored."""
        entry = self._entries.get(name)
        if entry is None:
            return None
        if self._expired(entry, now_unix_ms):
            self._drop(name)
            return None
        self._entries[name] = entry._replace(used_unix_ms=now_unix_ms)
        self._entries.move_to_end(name)
        return entry.value

    def put(self, name: bytes, value: V, owner: str, now_unix_ms: float) -> None:
        """Store a value in place of the name's former one. A value larger than the whole cache is evicted
        immediately."""
        if name in self._entries:
            self._drop(name)
        self._purge(now_unix_ms)
        size = len(value) + ENTRY_BYTES
        if size > self._max_bytes:
            self._evicted(name, value, owner)
            return
        while self.num_bytes + size > self._max_bytes:
            oldest, entry = next(iter(self._entries.items()))
            self._drop(oldest)
            self._evicted(oldest, entry.value, entry.owner)
        self._entries[name] = _CachedValue(value, owner, now_unix_ms)
        self._owners.setdefault(owner, set()).add(name)
        self.num_bytes += size

    def erase(self, owner: str) -> None:
        """Drop all blocks of an owner."""
        for name in tuple(self._owners.get(owner, ())):
            self._drop(name)

    def _purge(self, now_unix_ms: float) -> None:
        """Drop expired values, beginning with the least recently used. On average this drops at most one for each
        call."""
        while self._entries:
            name, entry = next(iter(self._entries.items()))
            if not self._expired(entry, now_unix_ms):
                return
            self._drop(name)

    def _expired(self, entry: _CachedValue[V], now_unix_ms: float) -> bool:
        return now_unix_ms - entry.used_unix_ms >= self._ttl_ms

    def _drop(self, name: bytes) -> None:
        entry = self._entries.pop(name)
        self.num_bytes -= len(entry.value) + ENTRY_BYTES
        names = self._owners[entry.owner]
        names.discard(name)
        if not names:
            del self._owners[entry.owner]
        self._dropped(entry.value)
