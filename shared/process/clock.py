"""The one place that reads clocks for the shells. Cores are given `now_unix_ms`.

A process has a time of its own: what its wall clock said when it started, and from then on what its monotonic clock
counts. Deadlines are armed by it, and whatever is done to the wall clock moves none. Between processes, on the wire,
moments are by the wall clock: they are converted where they come in and go out, by a correction that follows it.
"""

import time
from typing import Final

from shared.process.process_clock import ProcessClock

_READ_WITHIN_MS: Final = 1.0
_READINGS: Final = 3


def _read() -> tuple[float, float]:
    """The wall clock and the monotonic one, as they stood together: of a few readings the one that took least."""
    best: tuple[float, float, float] | None = None
    for _ in range(_READINGS):
        before_ms = time.monotonic() * 1_000.0
        wall_ms = time.time() * 1_000.0
        after_ms = time.monotonic() * 1_000.0
        took_ms = after_ms - before_ms
        if best is None or took_ms < best[0]:
            best = took_ms, wall_ms, (before_ms + after_ms) / 2
        if took_ms <= _READ_WITHIN_MS:
            break
    assert best is not None, "read at least once"
    return best[1], best[2]


def _started() -> ProcessClock:
    wall_ms, monotonic_ms = _read()
    return ProcessClock(wall_ms - monotonic_ms)


_clock: Final = _started()


def now_unix_ms() -> float:
    """This process's time in Unix milliseconds, which no clock that is set moves: what deadlines are compared with."""
    return _clock.now(time.monotonic() * 1_000.0)


def correction_ms() -> int:
    """What moments on the wire are ahead of this process's time."""
    return _clock.correction_ms


def wire_unix_ms() -> float:
    """Now, as other processes are told of it."""
    return now_unix_ms() + _clock.correction_ms


def observe_wall_clock() -> float:
    """Have the wire's time follow the wall clock, which it is behind by so many milliseconds still. A process calls it
    every half a second, from one place (`shared.process.vitals`)."""
    return _clock.observe(*_read())
