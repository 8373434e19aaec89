"""Decide how long the first of the waiting is held so that others can share its prefill call: pure, `now` a
parameter."""

import math
from dataclasses import dataclass
from typing import Final

BUSY_MS: Final = 10.0
QUIET_MS: Final = 50.0
_COMFORT: Final = 4.0  # the slack is so many times the rest of the window at least: nobody who is held is lost by it
_GAP_STEP: Final = 0.1  # a memory of about ten gaps


@dataclass(slots=True)
class Window:
    """Open from when somebody comes to nobody, and only while the next is expected within it: 10 ms while others run,
    50 ms while the engine is quiet."""

    max_rows: int
    max_tokens: int
    closes_unix_ms: float | None = None
    """The latest moment at which it closes; None where it is closed."""
    _opened_unix_ms: float = 0.0
    _gap_ms: float = math.inf
    _last_unix_ms: float = -math.inf

    def arrived(self, unix_ms: float, *, alone: bool) -> None:
        """Note an arrival; `alone`: nobody waited."""
        gap_ms = max(0.0, unix_ms - self._last_unix_ms)
        self._gap_ms = gap_ms if math.isinf(self._gap_ms) else self._gap_ms + _GAP_STEP * (gap_ms - self._gap_ms)
        self._last_unix_ms = max(self._last_unix_ms, unix_ms)
        if alone:
            self._opened_unix_ms, self.closes_unix_ms = unix_ms, unix_ms + QUIET_MS

    def holds(self, now_unix_ms: float, *, rows: int, tokens: int, room: int, slack_ms: float, busy: bool) -> bool:
        """Return whether the waiting requests are held back: so many rows and tokens, with `room` in the slots.
        `slack_ms` is the least time to a latest start. `busy`: others run. A closed window stays closed until a request
        comes alone; a clock that was set back closes it."""
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
