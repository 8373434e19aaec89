"""End a worker that hangs, so that another gets its partitions and its supervisor restarts it.

Before it serves, loading and measuring have their own limits. A step that does not end is noticed by the event loop,
which leaves the group and ends the process. It checks twice, because after the process was suspended a normal step
looks late once. If the event loop itself does not run, because native code holds the interpreter, a timer that needs
neither ends the process. It also ends a process that is resumed after a pause longer than the limit (SIGSTOP, a
container's pause). Other workers have its partitions already, and to the timer a pause is the same as a hang.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from shared.errors import EngineError
from shared.process.threads import MACHINERY

# from the detection of a hanging step to the process's end
LEAVE_S: Final = 4.0
LOAD_S: Final = 1_800.0  # a GPU's plans may have to be built, which takes minutes
_LOOK_S: Final = 0.5
# At most LEAVE_S, so that a step that ends in time never meets the timer. Setting it starts a thread, for which the
# interpreter waits: on a busy machine tens of milliseconds.
_TIMER_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Watchdog:
    """Watches the engine. `stuck` returns what hangs, or None. `limit_s` is the maximum duration of a step."""

    stuck: Callable[[], str | None]
    limit_s: float

    async def watch(self) -> None:
        """Watch until cancelled.

        Raises:
            EngineError: the engine hangs. The process then ends within `LEAVE_S`, even if a call blocks it.
        """
        late, set_s, now_s = False, float("-inf"), asyncio.get_running_loop().time
        try:
            while (why := self.stuck()) is None or not late:
                late = why is not None
                if now_s() >= set_s + _TIMER_S:
                    end_within(self.limit_s + LEAVE_S)
                    set_s = now_s()
                await asyncio.sleep(_LOOK_S)
        except asyncio.CancelledError:
            end_never()
            raise
        end_within(LEAVE_S)
        raise EngineError(why)


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """End the process if the block takes longer. For the time before the engine serves, when nothing else watches
    it."""
    end_within(seconds)
    try:
        yield
    finally:
        end_never()


def end_within(seconds: float) -> None:
    """End the process with status 1 after this time unless called again; stderr gets the stacks of its threads.

    The stacks contain functions and lines, no values.
    """
    MACHINERY.get().exit_after(seconds)


def end_never() -> None:
    """Cancel `end_within`."""
    MACHINERY.get().exit_never()
