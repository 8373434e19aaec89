"""Work that runs beside the synchronous code."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field

from shared.telemetry.faults import caught


@dataclass(slots=True)
class Background:
    """A fault of our own is counted and logged here, at the process's edge, and ends one request."""

    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __len__(self) -> int:
        """Pieces of work that go on."""
        return len(self._tasks)

    def start(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            caught("task", error)
