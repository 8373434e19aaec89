"""Background tasks with an owner: no failure goes unnoticed, and no task outlives its owner."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

OnError = Callable[[str, BaseException], None]


class Tasks:
    """A group of tasks.

    Args:
        on_error: called with the name and error of each task that fails. Without it `run_until` raises the first error.
    """

    def __init__(self, on_error: OnError | None = None) -> None:
        self._on_error = on_error or self._fail
        self._tasks: dict[asyncio.Task[None], OnError] = {}
        self._failed = asyncio.Event()
        self._error: BaseException | None = None

    def __len__(self) -> int:
        return len(self._tasks)

    def start(
        self, work: Coroutine[object, object, None], name: str | None = None, *, on_error: OnError | None = None
    ) -> asyncio.Task[None]:
        """Start a task. `on_error` is called in place of the group's if this task fails."""
        task = asyncio.create_task(work, name=name)
        self._tasks[task] = on_error or self._on_error
        task.add_done_callback(self._ended)
        return task

    async def room(self, limit: int) -> None:
        """Wait until fewer than `limit` tasks run."""
        while len(self._tasks) >= limit:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    async def drain(self, limit_s: float | None = None) -> None:
        """Wait for all tasks up to the limit, then cancel the rest."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=limit_s)
        await self.cancel()

    async def cancel(self, *names: str) -> None:
        """Cancel the tasks with these names, or all if none is given, and wait for their end."""
        tasks = [task for task in self._tasks if not names or task.get_name() in names]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def run_until(self, *stops: asyncio.Event) -> None:
        """Wait for one of `stops`; raise the error of a task that fails before."""
        ends = [asyncio.create_task(event.wait(), name="end") for event in (*stops, self._failed)]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
        if self._error is not None:
            raise self._error

    def _ended(self, task: asyncio.Task[None]) -> None:
        on_error = self._tasks.pop(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            on_error(task.get_name(), error)

    def _fail(self, _name: str, error: BaseException) -> None:
        self._error = self._error or error
        self._failed.set()


def abandon(task: "asyncio.Future[Any]") -> None:
    """Cancel a task whose result is no longer needed. Libraries raise their own errors when a task is cancelled; these
    are not logged."""
    task.cancel()
    task.add_done_callback(_retrieve)


def _retrieve(task: "asyncio.Future[Any]") -> None:
    if not task.cancelled():
        task.exception()
