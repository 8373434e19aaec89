"""Locks by key, served in order of arrival. Different keys do not block each other."""

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Lock:
    """The lock of one key, shared by the tasks that hold it or wait for it."""

    key: Hashable
    locks: "dict[Hashable, _Lock]"
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # serves tasks in order of arrival
    users: int = 0

    async def __aenter__(self) -> None:
        self.users += 1
        try:
            await self.lock.acquire()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        self.lock.release()
        self._leave()

    def _leave(self) -> None:
        self.users -= 1
        if not self.users:
            del self.locks[self.key]


@dataclass(slots=True)
class KeyedLocks:
    """Locks by key. A lock exists while a task holds it or waits for it."""

    _locks: dict[Hashable, _Lock] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._locks)

    def hold(self, key: Hashable) -> _Lock:
        """Hold the key's lock inside the `async with` block of the value."""
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = _Lock(key, self._locks)
        return lock
