"""Measure how long a link takes, so that a deadline can be sent over it, and its silence be noticed. Pure.

The round trip is smoothed, with its mean deviation, as TCP does (RFC 6298). A round trip that was tried again gives no
sample, and doubles the wait for the next one until a sample is taken (Karn and Partridge, 1987).
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
    """The round trip in milliseconds, None before the first sample; and how far it strays."""

    round_trip_ms: float | None = None
    deviation_ms: float = 0.0
    _backoff: int = field(default=1, init=False)
    _is_new: bool = field(default=True, init=False)

    def add_sample(self, took_ms: float) -> None:
        """Add a round trip that was tried once."""
        self._backoff = 1
        if self._is_new or self.round_trip_ms is None:
            self._is_new = False
            self.round_trip_ms, self.deviation_ms = took_ms, took_ms / 2
            return
        self.deviation_ms += _DEVIATION_GAIN * (abs(took_ms - self.round_trip_ms) - self.deviation_ms)
        self.round_trip_ms += _GAIN * (took_ms - self.round_trip_ms)

    def back_off(self) -> None:
        """Double the wait: a round trip took longer than that."""
        self._backoff *= 2

    def restart(self) -> None:
        """Begin anew with the next sample: the link is back, and may lead another way. Until then the last times and
        the wait hold."""
        self._is_new = True

    @property
    def wait_ms(self) -> float:
        """Return how long to wait for a round trip before it is tried again."""
        if self.round_trip_ms is None:
            return MOST_WAIT_MS
        usual_ms = 2 * (self.round_trip_ms + _DEVIATIONS * self.deviation_ms)
        return min(MOST_WAIT_MS, self._backoff * max(_LEAST_WAIT_MS, usual_ms))

    def left_ms(self, due_unix_ms: float, now_unix_ms: float) -> int:
        """Return what is left of a deadline for the centre: there and back are the link's, and some time is the edge's,
        which answers by itself if nothing came. 0 or less: it is not worth asking."""
        link_ms = (self.round_trip_ms or 0.0) + _DEVIATIONS * self.deviation_ms
        return int(due_unix_ms - now_unix_ms - link_ms - 2 * ANSWER_MS)
