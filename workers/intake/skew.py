"""Watch the clocks of producers. A record cannot come before it was written: where it seems to, its producer's clock is
ahead of ours by at least the difference."""

from dataclasses import dataclass, field
from typing import Final

from shared.kafka import Record
from shared.telemetry import metrics
from shared.telemetry.logs import get_logger
from shared.wire.topics import CE_SOURCE

_TOLERATED_MS: Final = 1_000.0
_LOG_EVERY_MS: Final = 60_000.0


@dataclass(slots=True)
class ClockSkew:
    """Counts each record from a clock that is ahead; the log gets one line a minute."""

    _logged_unix_ms: float = field(default=float("-inf"), init=False)

    def check(self, record: Record, created_unix_ms: int, now_unix_ms: float) -> None:
        """Check a record that says when it was created; `now_unix_ms` by the wire's clock."""
        ahead_ms = created_unix_ms - now_unix_ms
        if ahead_ms <= _TOLERATED_MS:
            return
        metrics.odd_requests.labels("clock").inc()
        if abs(now_unix_ms - self._logged_unix_ms) < _LOG_EVERY_MS:
            return
        self._logged_unix_ms = now_unix_ms
        get_logger().warning(
            "clock_skew",
            ahead_ms=round(ahead_ms),
            source=record.headers.get(CE_SOURCE, b"").decode("utf-8", "replace"),
            action="deadlines are kept as docs/deadlines.md says; synchronise the clocks of producers and workers",
        )
