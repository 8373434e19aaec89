"""The one place that reads clocks for the shells. Cores are given `now_unix_ms`.

A process has a time of its own: what its wall clock said when it started, and from then on what its monotonic clock
counts. Deadlines are armed by it, and whatever is done to the wall clock moves none. Between processes, on the wire,
moments are by the wall clock: they are converted where they come in and go out, by a correction that follows it.

The clocks are those of the context: several processes may run in one interpreter, each by clocks of its own.
"""

import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from shared.process.process_clock import ProcessClock

_READ_WITHIN_MS: Final = 1.0
_READINGS: Final = 3


@dataclass(slots=True)
class Clocks:
    """The clocks of one process: `monotonic_s` counts, `wall_s` says the Unix time."""

    monotonic_s: Callable[[], float]
    wall_s: Callable[[], float]
    process: ProcessClock = field(init=False)

    def __post_init__(self) -> None:
        wall_ms, monotonic_ms = self.read()
        self.process = ProcessClock(wall_ms - monotonic_ms)

    def read(self) -> tuple[float, float]:
        """Return the wall clock and the monotonic one as they stood together: of a few readings the quickest."""
        best: tuple[float, float, float] | None = None
        for _ in range(_READINGS):
            before_ms = self.monotonic_s() * 1_000.0
            wall_ms = self.wall_s() * 1_000.0
            after_ms = self.monotonic_s() * 1_000.0
            took_ms = after_ms - before_ms
            if best is None or took_ms < best[0]:
                best = took_ms, wall_ms, (before_ms + after_ms) / 2
            if took_ms <= _READ_WITHIN_MS:
                break
        assert best is not None, "read at least once"
        return best[1], best[2]


CLOCKS: Final = ContextVar("clocks", default=Clocks(time.monotonic, time.time))  # noqa: B039 - the machine's clocks


def monotonic_s() -> float:
    """Return the seconds that this process's monotonic clock has counted."""
    return CLOCKS.get().monotonic_s()


def now_unix_ms() -> float:
    """Return this process's time in Unix milliseconds, which no clock that is set moves: what deadlines are compared
    with."""
    clocks = CLOCKS.get()
    return clocks.process.now(clocks.monotonic_s() * 1_000.0)


def correction_ms() -> int:
    """Return how far moments on the wire are ahead of this process's time."""
    return CLOCKS.get().process.correction_ms


def wire_unix_ms() -> float:
    """Now, as other processes are told of it."""
    return now_unix_ms() + correction_ms()


def observe_wall_clock() -> float:
    """Have the wire's time follow the wall clock, which it is behind by so many milliseconds still. A process calls it
    every half a second, from one place (`shared.process.vitals`)."""
    clocks = CLOCKS.get()
    return clocks.process.observe(*clocks.read())
