"""Read clocks, for all shells. Cores get `now_unix_ms` as an argument.

A process has its own time: its wall clock at the start plus the monotonic clock since then. Deadlines use this time, so
setting the wall clock moves none. On the wire, between processes, times are by the wall clock; they are converted at
the edges with a correction that follows the wall clock.

The clocks belong to the context: several processes may run in one interpreter, each with its own clocks.
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
    """The clocks of one process. `wall_s` returns the Unix time, `cpu_s` the CPU time of the calling thread."""

    monotonic_s: Callable[[], float]
    wall_s: Callable[[], float]
    cpu_s: Callable[[], float] = time.thread_time
    process: ProcessClock = field(init=False)

    def __post_init__(self) -> None:
        wall_ms, monotonic_ms = self.read()
        self.process = ProcessClock(wall_ms - monotonic_ms)

    def read(self) -> tuple[float, float]:
        """Return the wall and the monotonic time at the same moment, from the fastest of a few readings."""
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
    """Return the seconds on this process's monotonic clock."""
    return CLOCKS.get().monotonic_s()


def cpu_s() -> float:
    """Return the seconds of CPU time that this thread has used."""
    return CLOCKS.get().cpu_s()


def now_unix_ms() -> float:
    """Return this process's time in Unix milliseconds, which deadlines are compared with and which setting a clock
    never moves."""
    clocks = CLOCKS.get()
    return clocks.process.now(clocks.monotonic_s() * 1_000.0)


def correction_ms() -> int:
    """Return how far the wire's time is ahead of this process's time."""
    return CLOCKS.get().process.correction_ms


def wire_unix_ms() -> float:
    """Return the current time as written on the wire."""
    return now_unix_ms() + correction_ms()


def observe_wall_clock() -> float:
    """Make the wire's time follow the wall clock; return the remaining difference in milliseconds.

    A process calls this every half second from one place (`shared.process.vitals`).
    """
    clocks = CLOCKS.get()
    return clocks.process.observe(*clocks.read())
