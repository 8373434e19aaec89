"""Decide how long the first waiting request is delayed so that others can share its prefill call. Pure."""

import math
from dataclasses import dataclass
from typing import Final

BUSY_MS: Final = 10.0
QUIET_MS: Final = 50.0
# the slack is at least this many times the rest of the window, so that no delayed request misses its deadline
_COMFORT: Final = 4.0
_GAP_STEP: Final = 0.1  # an average over about ten gaps


@dataclass(slots=True)
class Window:
    """The window during which requests are delayed.

    It opens when a request arrives and none waits, and stays open while the next one is expected within it: 10 ms while
    others run, 50 ms while the engine is idle.
    """

    max_rows: int
    max_tokens: int
    closes_unix_ms: float | None = None
    """The latest moment at which it closes; None while it is closed."""
    _opened_unix_ms: float = 0.0
    _gap_ms: float = math.inf
    _last_unix_ms: float = -math.inf

    def arrived(self, unix_ms: float, *, alone: bool) -> None:
        """Record an arrival; `alone`: no other request waited."""
        gap_ms = max(0.0, unix_ms - self._last_unix_ms)
        self._gap_ms = gap_ms if math.isinf(self._gap_ms) else self._gap_ms + _GAP_STEP * (gap_ms - self._gap_ms)
        self._last_unix_ms = max(self._last_unix_ms, unix_ms)
        if alone:
            self._opened_unix_ms, self.closes_unix_ms = unix_ms, unix_ms + QUIET_MS

    def holds(self, now_unix_ms: float, *, rows: int, tokens: int, room: int, slack_ms: float, busy: bool) -> bool:
        """Return whether the waiting requests are delayed.

        A closed window stays closed until a request arrives alone; a clock that is set back closes it.

        Args:
            now_unix_ms: the current time.
            rows: number of waiting requests.
            tokens: number of their prompt tokens.
            room: number of free slots.
            slack_ms: the shortest time to a latest start.
            busy: other requests run.
        """
        if self.closes_unix_ms is None:
            return False
        bound_ms = BUSY_MS if busy else QUIET_MS
        closes = min(self.closes_unix_ms, self._opened_unix_ms + bound_ms)
        full = rows >= min(self.max_rows, room) or tokens + tokens // rows > self.max_tokens
        expected = max(self._gap_ms, now_unix_ms - self._last_unix_ms) <= bound_ms
        comfortable = slack_ms >= _COMFORT * (closes - now_unix_ms)
        held = self._opened_unix_ms <= now_unix_ms < closes and expected and comfortable and not full
        self.closes_unix_ms = closes if held else None
        return held
