"""Measure a link's round trip, to send deadlines over the link and to detect its silence. Pure.

The round trip is smoothed, with its mean deviation, as TCP does (RFC 6298). A round trip that was retried gives no
sample, and doubles the wait for the next one until there is a sample (Karn and Partridge, 1987).
"""

from dataclasses import dataclass, field
from typing import Final

_GAIN: Final = 1 / 8
_DEVIATION_GAIN: Final = 1 / 4
_DEVIATIONS: Final = 4
_LEAST_WAIT_MS: Final = 1_000.0
MOST_WAIT_MS: Final = 5_000.0
"""A centre that takes longer is away."""
ANSWER_MS: Final = 100.0  # what this edge takes to answer by itself, if the centre has not


@dataclass(slots=True)
class LinkTime:
    """The round trip in milliseconds, None before the first sample, and its mean deviation."""

    round_trip_ms: float | None = None
    deviation_ms: float = 0.0
    _backoff: int = field(default=1, init=False)
    _is_new: bool = field(default=True, init=False)

    def add_sample(self, took_ms: float) -> None:
        """Add a round trip that was not retried."""
        self._backoff = 1
        if self._is_new or self.round_trip_ms is None:
            self._is_new = False
            self.round_trip_ms, self.deviation_ms = took_ms, took_ms / 2
            return
        self.deviation_ms += _DEVIATION_GAIN * (abs(took_ms - self.round_trip_ms) - self.deviation_ms)
        self.round_trip_ms += _GAIN * (took_ms - self.round_trip_ms)

    def back_off(self) -> None:
        """Double the wait after a round trip that took longer than it."""
        self._backoff *= 2

    def restart(self) -> None:
        """Discard the average at the next sample, since the link is back and may take another route. The old values
        apply before that sample."""
        self._is_new = True

    @property
    def wait_ms(self) -> float:
        """Return how long to wait for a round trip before it is retried."""
        if self.round_trip_ms is None:
            return MOST_WAIT_MS
        usual_ms = 2 * (self.round_trip_ms + _DEVIATIONS * self.deviation_ms)
        return min(MOST_WAIT_MS, self._backoff * max(_LEAST_WAIT_MS, usual_ms))

    def left_ms(self, due_unix_ms: float, now_unix_ms: float) -> int:
        """Return how much of a deadline is left for the centre in ms. The link's round trip is subtracted, and the time
        in which the edge answers itself if the centre does not. With 0 or less the centre is not asked."""
        link_ms = (self.round_trip_ms or 0.0) + _DEVIATIONS * self.deviation_ms
        return int(due_unix_ms - now_unix_ms - link_ms - 2 * ANSWER_MS)
