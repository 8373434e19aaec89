"""How many requests may be unanswered at once: pure.

Additive increase, multiplicative decrease by deadline attainment, after the AIMD limit of Netflix's concurrency-limits
(https://github.com/Netflix/concurrency-limits) and Chiu and Jain (1989): a worker's word that comes later than the
request's own first-token deadline is a loss. A request that a worker refuses in time is none: with more to choose from
it meets more, so the limit gives way only where nobody even says no in time. As TCP does, it changes at most once in a
window, falls from what is in flight (the limit itself may be far above), and rises only while it is used; the step up
is the limit's root, the queue that the same library's Gradient2 allows.
"""

import math
from dataclasses import dataclass
from typing import Final

_WINDOW_MS: Final = 1_000.0
_BACK_OFF: Final = 0.8
_LATE_SHARE: Final = 0.05


@dataclass(frozen=True, slots=True)
class ConcurrencyBounds:
    lowest: int
    highest: int


class ConcurrencyLimit:
    def __init__(self, bounds: ConcurrencyBounds) -> None:
        self._bounds = bounds
        self.value = bounds.highest
        self._window_unix_ms: float | None = None
        self._words = 0
        self._late = 0
        self._most_inflight = 0

    def measured(self, *, late: bool, inflight: int, now_unix_ms: float) -> None:
        """A worker's first word on a request has come, or has not come in time; `inflight` requests are unanswered."""
        if self._window_unix_ms is None:
            self._window_unix_ms = now_unix_ms
        elif abs(now_unix_ms - self._window_unix_ms) >= _WINDOW_MS:
            self._settle()
            self._window_unix_ms = now_unix_ms
        self._words += 1
        self._late += late
        self._most_inflight = max(self._most_inflight, inflight)

    def _settle(self) -> None:
        """What the window's words say of the limit."""
        if self._late > self._words * _LATE_SHARE:
            wanted = int(min(self.value, self._most_inflight) * _BACK_OFF)
        elif self._most_inflight * 2 >= self.value:
            wanted = self.value + math.isqrt(self.value)
        else:
            wanted = self.value
        self.value = max(self._bounds.lowest, min(wanted, self._bounds.highest))
        self._words = self._late = self._most_inflight = 0
