"""Expect what will be asked when a worker that starts now serves: by the minutes before, and the operator's calendar.
Pure.

The minutes before are used only if workers take long to start. For a shorter cold start the demand of the last minute
says as much as a forecast."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ops.scaling.forecast.calendar import Calendar
from ops.scaling.forecast.demand_forecast import Forecast
from shared.wire.scaling import ScalingRecord

MINUTE_MS: Final = 60_000
_QUANTILE: Final = 0.9
FORECAST_FROM_MS: Final = 300_000.0
_LONGEST_GAP: Final = 7 * 24 * 60
_SET_BACK: Final = 2  # minutes; a minute longer ago is the present of a clock that was set back


@dataclass(slots=True)
class Expectation:
    """`expected` is the work a second that is exceeded in one of ten cases; None before the first minute."""

    forecast: Forecast
    calendar: Calendar
    expected: float | None = None
    minute: int | None = None
    """The last one that has ended."""
    _asked: float = math.nan

    def replay(self, records: Iterable[ScalingRecord], horizon_ms: float) -> None:
        """Learn the minutes of a pool's records, oldest first, and what was expected before a promotion began."""
        for record in records:
            if self._observe(record.unix_ms, record.asked):
                base = record.asked if record.expected is None else record.expected
                self.calendar.at_least(record.unix_ms, horizon_ms, math.nan if base is None else base)
        if self.minute is not None:
            self._look(self.minute * MINUTE_MS, horizon_ms)

    def end_minute(self, now_unix_ms: float, asked: float | None, horizon_ms: float) -> bool:
        """Take what the minute that has just ended asked, None if it is not known; return False if it was taken
        already."""
        new = self._observe(now_unix_ms, asked)
        if new:
            self._look(now_unix_ms, horizon_ms)
        return new

    def _observe(self, now_unix_ms: float, asked: float | None) -> bool:
        """Observe a minute, and before it as unknown what was not recorded between."""
        minute = int(now_unix_ms // MINUTE_MS)
        if self.minute is not None:
            if 0 <= self.minute - minute <= _SET_BACK:
                return False
            for _ in range(min(minute - self.minute - 1, _LONGEST_GAP)):
                self.forecast.observe(math.nan)
        self.minute = minute
        self._asked = math.nan if asked is None else asked
        self.forecast.observe(self._asked)
        return True

    def _look(self, now_unix_ms: float, horizon_ms: float) -> None:
        steps = math.ceil(horizon_ms / MINUTE_MS)
        upper = self.forecast.upper(steps, _QUANTILE) if horizon_ms >= FORECAST_FROM_MS else math.nan
        planned = self.calendar.at_least(now_unix_ms, horizon_ms, self._asked if math.isnan(upper) else upper)
        known = planned if math.isnan(upper) else max(upper, planned)
        self.expected = known if known > 0.0 or not math.isnan(upper) else None
