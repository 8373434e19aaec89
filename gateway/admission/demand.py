"""Count what customers ask of each lane before admission, as the machine time that its workers would take. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.wire.lanes import Lane
from shared.wire.messages import Bucket
from shared.wire.scaling import Asked


@dataclass(slots=True)
class _Counts:
    requests: int = 0
    work_ms: float = 0.0
    turned_away: int = 0


@dataclass(slots=True)
class Demand:
    """A gateway's counts since it started; owned by its event loop. A price is the machine time of one request, by what
    a lane's workers last reported: it is kept when they are gone."""

    _prices: dict[tuple[Lane, Bucket], float] = field(default_factory=dict)
    _counts: dict[tuple[Lane, Bucket], _Counts] = field(default_factory=dict)

    def price(self, lane: Lane, service_ms: Mapping[Bucket, float]) -> None:
        """Take what a request of each bucket costs the lane's workers now."""
        for bucket, ms in service_ms.items():
            self._prices[lane, bucket] = ms

    def ask(self, lane: Lane, bucket: Bucket) -> float:
        """Count a request; return its machine time in ms, 0 while no worker has ever reported it."""
        counts = self._of(lane, bucket)
        work_ms = self._prices.get((lane, bucket), 0.0)
        counts.requests += 1
        counts.work_ms += work_ms
        return work_ms

    def turn_away(self, lane: Lane, bucket: Bucket) -> None:
        """Count that admission keeps one of the requests from the workers."""
        self._of(lane, bucket).turned_away += 1

    def asked(self) -> dict[Lane, dict[Bucket, Asked]]:
        """Return all counts, as they are reported."""
        asked: dict[Lane, dict[Bucket, Asked]] = {}
        for (lane, bucket), counts in self._counts.items():
            asked.setdefault(lane, {})[bucket] = Asked(counts.requests, counts.work_ms, counts.turned_away)
        return asked

    def _of(self, lane: Lane, bucket: Bucket) -> _Counts:
        counts = self._counts.get((lane, bucket))
        if counts is None:
            counts = self._counts[lane, bucket] = _Counts()
        return counts
