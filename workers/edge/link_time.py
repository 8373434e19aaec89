"""Tell how long a link takes, so that a deadline can be sent over it. Pure.

The round trip is smoothed, with its mean deviation, as TCP does (RFC 6298).
"""

from dataclasses import dataclass
from typing import Final

_GAIN: Final = 1 / 8
_DEVIATION_GAIN: Final = 1 / 4
_DEVIATIONS: Final = 4
ANSWER_MS: Final = 100.0  # what this edge takes to answer by itself, where the centre has not


@dataclass(slots=True)
class LinkTime:
    """The round trip in milliseconds, None before the first; and how far it strays."""

    round_trip_ms: float | None = None
    deviation_ms: float = 0.0

    def note(self, took_ms: float) -> None:
        """Note how long a round trip took."""
        if self.round_trip_ms is None:
            self.round_trip_ms, self.deviation_ms = took_ms, took_ms / 2
            return
        self.deviation_ms += _DEVIATION_GAIN * (abs(took_ms - self.round_trip_ms) - self.deviation_ms)
        self.round_trip_ms += _GAIN * (took_ms - self.round_trip_ms)

    def left_ms(self, due_unix_ms: float, now_unix_ms: float) -> int:
        """Return what is left of a deadline for the centre: there and back are the link's, and some time is the edge's,
        which answers by itself where nothing came. 0 or less: it is not worth asking."""
        link_ms = (self.round_trip_ms or 0.0) + _DEVIATIONS * self.deviation_ms
        return int(due_unix_ms - now_unix_ms - link_ms - 2 * ANSWER_MS)
