"""Clocks that disagree: pure. How far a producer's is from ours, whether that is its clock or its record's way, and a
word about it once a minute."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

TOLERATED_MS: Final = 1_000.0
REPORT_EVERY_MS: Final = 60_000.0
# What a producer has held back while Kafka was away comes all at once. Records that are behind over so long a time are
# of a clock that is.
HELD_BACK_MS: Final = 5_000.0
# Two records that are further apart say nothing of the time between them.
APART_MS: Final = 60_000.0
MAX_SOURCES: Final = 64
_NEVER: Final = float("-inf")


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


@dataclass(slots=True)
class _Producer:
    """By the broker's clock: when the newest record came in that agrees with it, and those after it that do not."""

    agreed_unix_ms: float = _NEVER
    first_unix_ms: float = _NEVER
    last_unix_ms: float = _NEVER
    records: int = 0
    least_ms: float = _NEVER

    def agrees(self, arrived_unix_ms: float) -> None:
        self.agreed_unix_ms = max(self.agreed_unix_ms, arrived_unix_ms)
        self.records = 0

    def differs(self, skew_ms: float, arrived_unix_ms: float) -> None:
        if not self.records or arrived_unix_ms - self.last_unix_ms > APART_MS:
            self.first_unix_ms, self.records, self.least_ms = arrived_unix_ms, 0, _NEVER
        self.first_unix_ms = min(self.first_unix_ms, arrived_unix_ms)
        self.last_unix_ms = max(self.last_unix_ms, arrived_unix_ms)
        self.records += 1
        self.least_ms = max(self.least_ms, skew_ms)

    @property
    def span_ms(self) -> float:
        return self.last_unix_ms - self.first_unix_ms


class SkewWatch:
    """Gathers what is beyond the tolerance; reports at once, then at most once a minute.

    One record that is ahead is proof: it cannot have come before it was written. One that is behind is none: its
    producer may have held it back while Kafka was away. A clock is behind in every record and a delay passes, so, as
    in NTP's clock filter (RFC 5905, section 10), the record that was least on its way tells: a producer is behind when
    all that came of it over `HELD_BACK_MS` or more was, and by the least of their differences.
    """

    def __init__(self) -> None:
        self._records = 0
        self._widest_ms = 0.0
        self._reported_unix_ms = _NEVER
        self._producers: OrderedDict[bytes, _Producer] = OrderedDict()

    def notice(
        self, skew_ms: float, now_unix_ms: float, *, arrived_unix_ms: int | None = None, source: bytes = b""
    ) -> SkewReport | None:
        """`arrived_unix_ms` is the broker's, `source` the producer's name for itself, empty where it gives none."""
        if skew_ms > TOLERATED_MS:
            return self._gather(1, skew_ms, now_unix_ms)
        if arrived_unix_ms is None:
            return None
        producer = self._producer(source)
        if skew_ms >= -TOLERATED_MS:
            producer.agrees(arrived_unix_ms)
        elif arrived_unix_ms > producer.agreed_unix_ms:
            producer.differs(skew_ms, arrived_unix_ms)
            if producer.span_ms >= HELD_BACK_MS:
                records, producer.records = producer.records, 0
                return self._gather(records, producer.least_ms, now_unix_ms)
        return None

    def _producer(self, source: bytes) -> _Producer:
        """Names are the producers' own: of more than `MAX_SOURCES` the one that was longest silent is forgotten."""
        found = self._producers.get(source)
        if found is None:
            found = self._producers[source] = _Producer()
            if len(self._producers) > MAX_SOURCES:
                self._producers.popitem(last=False)
        else:
            self._producers.move_to_end(source)
        return found

    def _gather(self, records: int, skew_ms: float, now_unix_ms: float) -> SkewReport | None:
        self._records += records
        self._widest_ms = max(self._widest_ms, skew_ms, key=abs)
        if now_unix_ms - self._reported_unix_ms < REPORT_EVERY_MS:
            return None
        report = SkewReport(self._records, self._widest_ms)
        self._records, self._widest_ms, self._reported_unix_ms = 0, 0.0, now_unix_ms
        return report
