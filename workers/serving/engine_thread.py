"""The thread of the engine's loop. The process can end without it, because with a hanging device a step never ends."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, Generic, TypeVar

from shared.process.threads import MACHINERY, make_thread

_NAME: Final = "engine"
T = TypeVar("T")


class EngineThread(Generic[T]):
    """A thread that runs an engine or loads its model. Not from an executor, because Python joins those threads at
    exit."""

    def __init__(self, run: Callable[[], T]) -> None:
        self._run = run
        self._ended: Future[T] = Future()
        self._ended.set_running_or_notify_cancel()
        self._thread = make_thread(self._compute, _NAME)
        self._thread.start()

    async def ended(self) -> T:
        """Wait for its end; return what `run` returned or raise what it raised."""
        return await asyncio.wrap_future(self._ended)

    async def wait(self, limit_s: float) -> bool:
        """Wait at most `limit_s` for the thread's end; return whether it has ended."""
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
    """Return whether an engine's thread of this process still runs.

    Its engine can neither be used nor closed, and the runtimes' cleanup at exit might wait for it forever.
    """
    return _NAME in MACHINERY.get().names()
