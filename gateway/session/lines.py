"""One line a session: who comes waits for those before, and sessions wait for nobody but themselves."""

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Line:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # it lets in who came first
    people: int = 0


@dataclass(slots=True)
class Lines:
    """A line is there while somebody stands in it."""

    _lines: dict[Hashable, _Line] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._lines)

    @asynccontextmanager
    async def turn(self, whose: Hashable) -> AsyncIterator[None]:
        """Wait for one's turn, and have it until the block is left."""
        line = self._lines.setdefault(whose, _Line())
        line.people += 1
        try:
            async with line.lock:
                yield
        finally:
            line.people -= 1
            if not line.people:
                del self._lines[whose]
