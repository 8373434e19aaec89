"""Keep one admission control per lane, and measure how much machine time the customers ask of each lane. Pure.

A lane is a group of workers that serve one model version, such as the champion's or the canary's. Lanes share nothing:
each has its own workers, circuit breakers and shares of the tenants.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from gateway.destination.admission import Admission, AdmissionPolicy
from gateway.destination.breaker import Breaker, BreakerState
from gateway.destination.destination import Destination
from shared.wire.lanes import CHAMPION, PASSED_ON, Lane
from shared.wire.messages import Bucket
from shared.wire.reports import WorkerReport
from shared.wire.scaling import BucketDemand


@dataclass(slots=True)
class _Counts:
    requests: int = 0
    work_ms: float = 0.0
    turned_away: int = 0
    judged: int = 0
    in_time: int = 0


@dataclass(slots=True)
class Demand:
    """Counts since the gateway started; owned by its event loop. The price of a request is its machine time as the
    lane's workers last reported it. It is kept after the workers are gone."""

    _prices: dict[tuple[Lane, Bucket], float] = field(default_factory=dict)
    _counts: dict[tuple[Lane, Bucket], _Counts] = field(default_factory=dict)

    def price(self, lane: Lane, service_ms: Mapping[Bucket, float]) -> None:
        """Set the price of a request of each bucket in a lane."""
        for bucket, ms in service_ms.items():
            self._prices[lane, bucket] = ms

    def ask(self, to: Destination) -> float:
        """Count a request; return its machine time in ms, or 0 if no worker has reported it yet."""
        counts = self._of(to)
        work_ms = self._prices.get((to.lane, to.bucket), 0.0)
        counts.requests += 1
        counts.work_ms += work_ms
        return work_ms

    def turn_away(self, to: Destination) -> None:
        """Count a request that admission did not send to the workers."""
        self._of(to).turned_away += 1

    def judge(self, to: Destination, *, in_time: bool) -> None:
        """Count a request that has ended, and whether the lane answered it within the promise."""
        counts = self._of(to)
        counts.judged += 1
        counts.in_time += in_time

    def asked(self) -> dict[Lane, dict[Bucket, BucketDemand]]:
        """Return all counts in the form in which they are published."""
        asked: dict[Lane, dict[Bucket, BucketDemand]] = {}
        for (lane, bucket), counts in self._counts.items():
            asked.setdefault(lane, {})[bucket] = BucketDemand(**asdict(counts))
        return asked

    def _of(self, to: Destination) -> _Counts:
        counts = self._counts.get((to.lane, to.bucket))
        if counts is None:
            counts = self._counts[to.lane, to.bucket] = _Counts()
        return counts


class LaneAdmissions:
    """The admissions of one gateway by lane, `known`, owned by its event loop. A lane's admission is created when it is
    first used; the champion's exists from the start."""

    def __init__(self, policy: AdmissionPolicy) -> None:
        self._policy = policy
        self.demand = Demand()
        self.known: dict[Lane, Admission] = {CHAMPION: Admission(policy)}
        self._lanes: dict[str, Lane] = {}  # of each known worker
        self._used: set[Lane] = set()

    def of(self, lane: Lane) -> Admission:
        """Return a lane's admission."""
        if lane not in self.known:
            self.known[lane] = Admission(self._policy)
        return self.known[lane]

    # --- workers

    def observe(self, report: WorkerReport, now_unix_ms: float) -> bool:
        """Store a worker's report; return whether the worker is new in its lane."""
        before = self._lanes.get(report.worker_id)
        if before is not None and before != report.lane:
            self.of(before).fleet.forget(report.worker_id)
        self._lanes[report.worker_id] = report.lane
        self._used.add(report.lane)
        self.of(report.lane).fleet.observe(report, now_unix_ms)
        if before != report.lane:
            self.price()
        return before != report.lane

    def price(self) -> None:
        """Update the price of each lane's requests from its workers' reports."""
        for lane, admission in self.known.items():
            self.demand.price(lane, admission.fleet.mean_service_ms())

    def forget(self, worker_id: str) -> bool:
        """Forget a worker that leaves; return whether it was known."""
        lane = self._lanes.pop(worker_id, None)
        return lane is not None and self.of(lane).fleet.forget(worker_id)

    def expire(self, now_unix_ms: float) -> list[str]:
        """Forget the workers that have not reported for too long; return their names."""
        silent = [name for each in self.known.values() for name in each.fleet.expire(now_unix_ms)]
        for name in silent:
            del self._lanes[name]
        return silent

    def is_empty(self, now_unix_ms: float) -> bool:
        """Return whether no lane has had a worker for a while; False without admission."""
        return self._policy.enabled and self.of(CHAMPION).fleet.is_empty(now_unix_ms) and not self._lanes

    def add_used(self, lanes: Iterable[Lane]) -> None:
        """Add lanes that had workers before this gateway started."""
        self._used.update(lanes)

    def abandoned(self) -> set[Lane]:
        """Return the lanes whose workers are all gone. Their requests are forwarded to the champion."""
        return {lane for lane in PASSED_ON if lane in self._used and not len(self.of(lane).fleet)}

    def open_lanes(self) -> tuple[Lane, ...]:
        """Return the lanes whose common breaker is open."""
        return tuple(lane for lane, one in self.known.items() if one.breaker.state is BreakerState.OPEN)

    def open_breakers(self) -> dict[str, Breaker]:
        """Return the breakers that are not closed, by worker."""
        return {name: one for each in self.known.values() for name, one in each.fleet.open_breakers().items()}

    # --- requests of any lane

    def note_first_reply(self, request_id: str, now_unix_ms: float) -> float | None:
        """Record a worker's reply. Return the time since receipt if it is the first one, otherwise None."""
        for each in self.known.values():
            if (took_ms := each.note_first_reply(request_id, now_unix_ms)) is not None:
                return took_ms
        return None

    def release(self, request_id: str) -> None:
        """Release a request whose answer has ended."""
        for each in self.known.values():
            each.release(request_id)

    def withdraw(self, request_id: str) -> None:
        """Remove a request that Kafka rejected: it counts neither for nor against the workers."""
        for each in self.known.values():
            each.withdraw(request_id)
