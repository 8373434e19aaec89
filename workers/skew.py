"""Clocks that disagree: pure. How far a producer's is from ours, and a word about it once a minute."""

from dataclasses import dataclass
from typing import Final

TOLERATED_MS: Final = 1_000.0
REPORT_EVERY_MS: Final = 60_000.0


def skew_ms(told_unix_ms: int, now_unix_ms: float, arrived_unix_ms: int | None) -> float:
    """How far ahead of ours a producer's clock is; behind is negative. 0 where nothing shows.

    `told_unix_ms` is a moment of the producer's clock, no later than its record's. One after now is ahead by at least
    the difference. One before the broker took the record in (`arrived_unix_ms`, by the broker's clock) is behind, or
    the record was held back by so much; without that a clock that is behind looks like a record that has waited.
    """
    if told_unix_ms > now_unix_ms:
        return told_unix_ms - now_unix_ms
    return min(0.0, float(told_unix_ms - arrived_unix_ms)) if arrived_unix_ms is not None else 0.0


@dataclass(frozen=True, slots=True)
class SkewReport:
    """Since the last report: how many records, and the widest difference."""

    records: int
    widest_ms: float


class SkewWatch:
    """Gathers what is beyond the tolerance; reports at once, then at most once a minute."""

    def __init__(self) -> None:
        self._records = 0
        self._widest_ms = 0.0
        self._reported_unix_ms = float("-inf")

    def notice(self, skew_ms: float, now_unix_ms: float) -> SkewReport | None:
        if abs(skew_ms) <= TOLERATED_MS:
            return None
        self._records += 1
        self._widest_ms = max(self._widest_ms, skew_ms, key=abs)
        if now_unix_ms - self._reported_unix_ms < REPORT_EVERY_MS:
            return None
        report = SkewReport(self._records, self._widest_ms)
        self._records, self._widest_ms, self._reported_unix_ms = 0, 0.0, now_unix_ms
        return report
