"""The long-running tasks of a process: started by name, cancelled by name, and none fails unseen."""

import asyncio
from collections.abc import Coroutine


class TaskSet:
    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._started = asyncio.Event()

    def start(self, name: str, work: Coroutine[object, object, None]) -> None:
        self._tasks[name] = asyncio.create_task(work, name=name)
        self._started.set()

    async def run_until(self, stop: asyncio.Event) -> None:
        """Wait for `stop`. A task that fails meanwhile raises its error here; one that ends by itself is forgotten."""
        stopping = asyncio.create_task(stop.wait(), name="stop")
        try:
            while not stop.is_set():
                self._started.clear()
                started = asyncio.create_task(self._started.wait(), name="started")
                await asyncio.wait({stopping, started, *self._tasks.values()}, return_when=asyncio.FIRST_COMPLETED)
                started.cancel()
                for name, task in list(self._tasks.items()):
                    if task.done():
                        del self._tasks[name]
                        task.result()
        finally:
            stopping.cancel()

    async def cancel(self, *names: str) -> None:
        """Cancel these tasks (all when none is named) and wait until they are gone."""
        tasks = [self._tasks.pop(name) for name in names or list(self._tasks) if name in self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
