"""The thread that the engine's loop runs on. It can be left behind: where a device or its driver hangs, a step never
ends, and the process has to."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, Generic, TypeVar

from shared.process.threads import MACHINERY, make_thread

_NAME: Final = "engine"
T = TypeVar("T")


class EngineThread(Generic[T]):
    """A thread that runs an engine or loads its model. It is not an executor's: Python waits at its end for all of
    theirs."""

    def __init__(self, run: Callable[[], T]) -> None:
        self._run = run
        self._ended: Future[T] = Future()
        self._ended.set_running_or_notify_cancel()
        self._thread = make_thread(self._compute, _NAME)
        self._thread.start()

    async def ended(self) -> T:
        """Wait until it has ended. Return what `run` returned, raise what it raised."""
        return await asyncio.wrap_future(self._ended)

    async def wait(self, limit_s: float) -> bool:
        """Wait `limit_s` at most for the thread to end. Return whether it has."""
        await asyncio.to_thread(self._thread.join, limit_s)
        return not self._thread.is_alive()

    def _compute(self) -> None:
        try:
            value = self._run()
        except BaseException as error:  # noqa: BLE001 - raised by `ended`
            self._ended.set_exception(error)
        else:
            self._ended.set_result(value)


def left_behind() -> bool:
    """Return whether an engine's thread of this process still runs: its engine can be neither used nor closed, and what
    the process does at its end, the runtimes' own clean-up for one, may wait for it for ever."""
    return _NAME in MACHINERY.get().names()
