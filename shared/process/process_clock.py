"""A process's own time, and what the wall clock is ahead of it: pure."""

from dataclasses import dataclass, field
from typing import Final

NEAR_MS: Final = 50.0
"""A wall clock that differs by less is followed at once: NTP that slews."""
HELD_MS: Final = 1_000.0
"""One that differs by more has been set. It is followed once it has kept to that for so long."""


@dataclass(slots=True)
class ProcessClock:
    """A process's time, and what the wire's is ahead of it. `start_unix_ms` is the wall clock at the monotonic clock's
    0. Any thread may read; one alone observes."""

    start_unix_ms: float
    correction_ms: int = field(default=0, init=False)
    _set_ms: float = field(default=0.0, init=False)
    _since_ms: float | None = field(default=None, init=False)  # monotonic; None where the wall clock is followed

    def now(self, monotonic_ms: float) -> float:
        """Return the process's time, in Unix milliseconds."""
        return self.start_unix_ms + monotonic_ms

    def observe(self, wall_ms: float, monotonic_ms: float) -> float:
        """Take in what both clocks said in one moment; returns by how much the wall clock is ahead of the wire's time
        from now on."""
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
