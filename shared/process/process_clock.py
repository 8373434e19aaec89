"""A process's own time, and its difference from the wall clock. Pure."""

from dataclasses import dataclass, field
from typing import Final

NEAR_MS: Final = 50.0
"""A smaller difference of the wall clock is followed immediately: NTP is slewing."""
HELD_MS: Final = 1_000.0
"""A larger difference means that the wall clock was set. It is followed once it has lasted this long."""


@dataclass(slots=True)
class ProcessClock:
    """A process's time, and how far the wire's time is ahead of it. Any thread may read; only one observes.

    `start_unix_ms` is the wall clock's value at the monotonic clock's 0.
    """

    start_unix_ms: float
    correction_ms: int = field(default=0, init=False)
    _set_ms: float = field(default=0.0, init=False)
    _since_ms: float | None = field(default=None, init=False)  # monotonic; None while the wall clock is followed

    def now(self, monotonic_ms: float) -> float:
        """Return the process's time in Unix milliseconds."""
        return self.start_unix_ms + monotonic_ms

    def observe(self, wall_ms: float, monotonic_ms: float) -> float:
        """Record a reading of both clocks; return how far the wall clock is still ahead of the wire's time."""
        ahead_ms = wall_ms - self.now(monotonic_ms)
        if abs(ahead_ms - self.correction_ms) < NEAR_MS:
            self._follow(ahead_ms)
        elif self._since_ms is None or abs(ahead_ms - self._set_ms) >= NEAR_MS:
            self._set_ms, self._since_ms = ahead_ms, monotonic_ms
        elif monotonic_ms - self._since_ms >= HELD_MS:
            self._follow(ahead_ms)
        return ahead_ms - self.correction_ms

    def _follow(self, ahead_ms: float) -> None:
        self.correction_ms, self._since_ms = round(ahead_ms), None
