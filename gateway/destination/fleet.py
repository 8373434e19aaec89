"""Estimate when a worker would give a request its first token, if it were sent now. Pure.

A worker reports a few times a second, with the partitions that it reads: a request's partition chooses its worker, and
only that one's estimate counts. Between reports, the requests sent to it since are added, less what the machine can
have done in that time, so a burst shows before the next report.

A report's age is measured from its receipt here: a worker's own clock, which may be minutes off, is compared and never
used. A report's lateness may also be time that it waited in Kafka, so only a difference that lasts is the clock's.

A worker that hangs or has died still owns its partitions until another reports that it reads them: requests sent there
are late by its fault, so each worker has its own breaker.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gateway.destination.breaker import Breaker, BreakerPolicy, BreakerState
from gateway.destination.partitions import Wait
from shared.wire.fields import Revision
from shared.wire.messages import Bucket, WorkerReport

# A request takes about this time until a worker counts it, and a report until it is read: what was sent just before a
# report came is not in it yet.
_TRANSIT_MS: Final = 50.0

_Place = tuple[Bucket, int]
_Partitions = Mapping[Bucket, Sequence[int]]


@dataclass(slots=True, eq=False)
class KnownWorker:
    """A worker by its newest report, and by what this gateway has sent it since."""

    report: WorkerReport
    received_unix_ms: float
    breaker: Breaker
    _num_sent: int = 0
    _work_ms: float = 0.0
    _recent: deque[tuple[float, Bucket]] = field(default_factory=deque)
    _tried_unix_ms: dict[Bucket, float] = field(default_factory=dict)

    def observe(self, report: WorkerReport, now_unix_ms: float) -> None:
        """Take a newer report, which counts all requests but the last ones sent."""
        self.report, self.received_unix_ms = report, now_unix_ms
        self._num_sent, self._work_ms = 0, 0.0
        self._forget_older(now_unix_ms)
        for _, bucket in self._recent:
            self._count(bucket)

    def sent(self, bucket: Bucket, now_unix_ms: float) -> None:
        """Count a request that this gateway has published and this worker will get."""
        self._forget_older(now_unix_ms)
        self._recent.append((now_unix_ms, bucket))
        self._count(bucket)

    def eta_ms(self, bucket: Bucket, now_unix_ms: float, *, cold: bool = False) -> float | None:
        """Return the time from now to the first token of a request sent now, of a conversation that the worker keeps
        nothing of where it is `cold`; None where the worker does not say."""
        if bucket not in self.report.first_token_ms:
            return None
        report = self.report
        first_token_ms = report.first_token_ms[bucket]
        queue_ms = min(report.backlog_ms, first_token_ms)
        free_slots = max(0, report.slots - report.running - report.waiting)
        ahead_ms = self._work_ms * (1 - free_slots / self._num_sent) if self._num_sent > free_slots else 0.0
        since_ms = max(0.0, now_unix_ms - self.received_unix_ms)
        cold_ms = report.cold_ms if cold else 0.0
        return cold_ms + max(first_token_ms - queue_ms, first_token_ms + ahead_ms - since_ms)

    def has(self, revision: Revision | None) -> bool:
        """Return whether a version is loaded, by the worker's report; None: any is."""
        return revision is None or revision in self.report.revisions

    def may_try(self, bucket: Bucket, now_unix_ms: float, *, interval_ms: float) -> bool:
        """Return whether a request may go to a worker against its prediction: now and then, else a wrong one would
        never be found out."""
        last = self._tried_unix_ms.get(bucket)
        if last is not None and abs(now_unix_ms - last) < interval_ms:
            return False
        self._tried_unix_ms[bucket] = now_unix_ms
        return True

    def _count(self, bucket: Bucket) -> None:
        service_ms = self.report.service_ms.get(bucket)
        if service_ms is not None:
            self._num_sent += 1
            self._work_ms += service_ms

    def _forget_older(self, now_unix_ms: float) -> None:
        while self._recent and abs(now_unix_ms - self._recent[0][0]) >= _TRANSIT_MS:
            self._recent.popleft()


class Fleet:
    """The known workers; owned by the gateway's event loop. A request takes the same time however many workers there
    are, while one reads its partition; else all of them are looked at."""

    def __init__(self, *, ttl_ms: float, breaker: BreakerPolicy | None = None) -> None:
        """`ttl_ms`: a worker that has been silent for longer predicts nothing, and `expire` forgets it."""
        self._ttl_ms = ttl_ms
        self._breaker = breaker or BreakerPolicy()
        self._known: dict[str, KnownWorker] = {}
        self._readers: dict[_Place, KnownWorker] = {}
        self._owners: dict[_Place, KnownWorker] = {}  # who reads it, or was the last to
        self.slots = 0

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, worker_id: str) -> bool:
        return worker_id in self._known

    def observe(self, report: WorkerReport, now_unix_ms: float) -> None:
        """Take in a report."""
        known = self._known.get(report.worker_id)
        if known is None:
            known = self._known[report.worker_id] = KnownWorker(report, now_unix_ms, Breaker(self._breaker))
            self._hand_over(known, {}, report.partitions)
            self.slots += report.slots
        else:
            self._hand_over(known, known.report.partitions, report.partitions)
            self.slots += report.slots - known.report.slots
            known.observe(report, now_unix_ms)

    def forget(self, worker_id: str) -> bool:
        """Forget a worker that leaves; False where it was not known."""
        known = self._known.pop(worker_id, None)
        if known is None:
            return False
        self.slots -= known.report.slots
        self._hand_over(known, known.report.partitions, {})
        return True

    def expire(self, now_unix_ms: float) -> list[str]:
        """Forget workers that have not reported for too long; return their names."""
        silent = [name for name, known in self._known.items() if not self._fresh(known, now_unix_ms)]
        for name in silent:
            self.forget(name)
        return silent

    def owner(self, bucket: Bucket, partition: int | None) -> KnownWorker | None:
        """Return the worker that reads the partition, or read it last; None if no worker has reported it."""
        return self._owners.get((bucket, partition)) if partition is not None else None

    def shut(self) -> dict[str, Breaker]:
        """Return, by worker, the breakers that are not closed."""
        owners = (*self._owners.values(), *self._known.values())
        return {each.report.worker_id: each.breaker for each in owners if each.breaker.state is not BreakerState.CLOSED}

    def reader(self, bucket: Bucket, partition: int | None, now_unix_ms: float) -> KnownWorker | None:
        """Return the worker that will get a request of that partition. If no worker reports it, as in a rebalance,
        return the soonest of those that serve the bucket; None if no such worker is known."""
        reader = self._readers.get((bucket, partition)) if partition is not None else None
        if reader is not None and self._fresh(reader, now_unix_ms):
            return reader
        soonest = [
            (eta_ms, name)
            for name, known in self._known.items()
            if bucket in known.report.buckets and self._fresh(known, now_unix_ms)
            if (eta_ms := known.eta_ms(bucket, now_unix_ms)) is not None
        ]
        return self._known[min(soonest)[1]] if soonest else None

    def waits(self, bucket: Bucket, now_unix_ms: float, revision: Revision | None = None) -> dict[int, Wait]:
        """Return the waits of the partitions that a worker reads which may be sent a request now: one that has the
        version loaded, unless no worker has."""
        waits: dict[int, Wait] = {}
        loaded = revision if self.serves(bucket, now_unix_ms, revision) else None
        for known in self._known.values():
            if not known.has(loaded):
                continue
            warm_ms = known.eta_ms(bucket, now_unix_ms) if self._fresh(known, now_unix_ms) else None
            if warm_ms is None or not known.breaker.allows(now_unix_ms):
                continue
            wait = Wait(warm_ms, warm_ms + known.report.cold_ms)
            mine = [
                each for each in known.report.partitions.get(bucket, ()) if self._readers.get((bucket, each)) is known
            ]
            waits.update(dict.fromkeys(mine, wait))
        return waits

    def serves(self, bucket: Bucket, now_unix_ms: float, revision: Revision | None = None) -> bool:
        """Return whether a worker that serves the bucket by a version has reported a moment ago; None: by any."""
        return any(
            bucket in known.report.buckets and known.has(revision) and self._fresh(known, now_unix_ms)
            for known in self._known.values()
        )

    def mean_service_ms(self) -> dict[Bucket, float]:
        """Return the machine time of one request by bucket, the mean of the known workers."""
        by_bucket: dict[Bucket, list[float]] = {}
        for known in self._known.values():
            for bucket, ms in known.report.service_ms.items():
                by_bucket.setdefault(bucket, []).append(ms)
        return {bucket: sum(each) / len(each) for bucket, each in by_bucket.items()}

    def _fresh(self, known: KnownWorker, now_unix_ms: float) -> bool:
        """Return whether a report is fresh by this gateway's own clock; after that was set back, a report from the
        future is not fresh either."""
        return abs(now_unix_ms - known.received_unix_ms) <= self._ttl_ms

    def _hand_over(self, known: KnownWorker, before: _Partitions, now: _Partitions) -> None:
        """Assign partitions by a worker's report: those that are new in it are its own; those that are gone from it
        stay its own unless another has reported them since."""
        if before == now:
            return
        was, is_ = _places(before), _places(now)
        for place in was - is_:
            if self._readers.get(place) is known:
                del self._readers[place]
        new = dict.fromkeys(is_ - was, known)
        self._readers.update(new)
        self._owners.update(new)


def _places(partitions: _Partitions) -> set[_Place]:
    return {(bucket, number) for bucket, numbers in partitions.items() for number in numbers}


# Less is the report's way here, and a network that stumbles.
_DIFFERS_MS: Final = 1_000.0
_LASTS_MS: Final = 5_000.0


@dataclass(slots=True)
class WorkerClocks:
    """The workers whose clocks differ from the gateway's."""

    _differs_since: dict[str, float] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)

    def differs(self, worker_id: str, behind_ms: float, now_unix_ms: float) -> bool:
        """Note a report that was written `behind_ms` ago by the worker's clock; return whether that clock differs, once
        until it is right again."""
        if abs(behind_ms) < _DIFFERS_MS:
            self.forget(worker_id)
            return False
        since = self._differs_since.setdefault(worker_id, now_unix_ms)
        if worker_id in self._told or now_unix_ms - since < _LASTS_MS:
            return False
        self._told.add(worker_id)
        return True

    def forget(self, worker_id: str) -> None:
        """Forget a worker that has left."""
        self._differs_since.pop(worker_id, None)
        self._told.discard(worker_id)
