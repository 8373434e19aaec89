"""Ends a worker that stands still: its partitions are another's then, and whoever supervises it starts it again.

Before it serves, loading and measuring have limits of their own. A step that does not end is seen by the event loop,
which leaves the group and ends the process. It looks twice: after the process was stopped for a while, a step that goes
on is late once. Where the event loop itself does not run (native code that keeps the interpreter to itself), a timer
ends it that needs neither.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from shared.errors import EngineError
from shared.process.threads import MACHINERY

# From the moment at which a step has taken too long until the process is gone.
LEAVE_S: Final = 4.0
LOAD_S: Final = 1_800.0  # a GPU's plans may be built meanwhile, which takes minutes
_LOOK_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Watchdog:
    """`stuck` says what stands still, None where nothing does. `limit_s` is how long a step may take."""

    stuck: Callable[[], str | None]
    limit_s: float

    async def watch(self) -> None:
        """Watch until cancelled. Raises `EngineError` once the engine stands still; from then on the process has
        `LEAVE_S` left, whatever keeps it."""
        late = False
        try:
            while (why := self.stuck()) is None or not late:
                late = why is not None
                end_within(self.limit_s + LEAVE_S)
                await asyncio.sleep(_LOOK_S)
        except asyncio.CancelledError:
            end_never()
            raise
        end_within(LEAVE_S)
        raise EngineError(why)


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """End the process where what is done in it takes longer: before the engine serves, nobody else watches it."""
    end_within(seconds)
    try:
        yield
    finally:
        end_never()


def end_within(seconds: float) -> None:
    """Unless this is called again by then the process ends with status 1, and says on stderr where its threads stand:
    functions and lines, no values."""
    MACHINERY.get().exit_after(seconds)


def end_never() -> None:
    """Take back what `end_within` said."""
    MACHINERY.get().exit_never()
