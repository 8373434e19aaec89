"""The one place that reads the clock for the shells. Cores are given `now_unix_ms`."""

import time
from dataclasses import dataclass
from typing import Final

FOLLOWS: Final = 0.01
"""So much of the time that has passed a steady clock gains or loses at most."""
JUMPS_MS: Final = 60_000.0
"""A wall clock that is further off has been set, or the machine has slept: then it is believed at once."""


@dataclass(slots=True)
class SteadyClock:
    """Unix time that does not jump where the wall clock does: NTP that steps, a hand that sets it. A deadline that was
    promised by it comes when it was promised, within a hundredth of the time until then. Pure."""

    _last: tuple[float, float] | None = None  # replaced as one: threads share the clock

    def read(self, wall_ms: float, monotonic_ms: float) -> float:
        """Now, in Unix milliseconds; no earlier than before, as long as the two differ by less than `JUMPS_MS`."""
        now = wall_ms
        if self._last is not None:
            unix_ms, at_ms = self._last
            passed_ms = max(0.0, monotonic_ms - at_ms)
            off_ms = wall_ms - (unix_ms + passed_ms)
            if abs(off_ms) < JUMPS_MS:
                most_ms = passed_ms * FOLLOWS
                now = unix_ms + passed_ms + min(most_ms, max(-most_ms, off_ms))
        self._last = now, monotonic_ms
        return now


_clock: Final = SteadyClock()


def now_unix_ms() -> float:
    """Unix time in milliseconds: what absolute deadlines are compared with, on every machine."""
    return _clock.read(time.time() * 1_000.0, time.monotonic() * 1_000.0)
