"""Locks by key, served in order of arrival. Different keys do not block each other."""

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Lock:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # serves tasks in order of arrival
    users: int = 0


@dataclass(slots=True)
class KeyedLocks:
    """Locks by key. A lock exists while a task holds it or waits for it."""

    _locks: dict[Hashable, _Lock] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def hold(self, key: Hashable) -> AsyncIterator[None]:
        """Hold the key's lock inside the `async with` block."""
        kept = self._locks.setdefault(key, _Lock())
        kept.users += 1
        try:
            async with kept.lock:
                yield
        finally:
            kept.users -= 1
            if not kept.users:
                del self._locks[key]
