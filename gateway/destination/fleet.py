"""Predict when a worker would return the first token of a request sent now. Pure.

Workers report a few times a second, with the partitions that they read. The partition of a request decides its worker,
and only that worker's estimate counts. Between two reports the gateway adds the requests it has sent to the worker and
subtracts the work that the machine can have done, so a burst shows before the next report.

The age of a report is measured from its receipt here. A worker's own clock, which may be minutes off, is only compared.
A late report may also have waited in Kafka, so a clock counts as different only if the difference lasts.

A worker that hangs or has died still owns its partitions until another worker reports that it reads them. Requests sent
there are late because of that worker, so each worker has its own breaker.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gateway.destination.breaker import Breaker, BreakerPolicy, BreakerState
from gateway.destination.partitions import Wait
from shared.wire.fields import Revision
from shared.wire.messages import Bucket
from shared.wire.reports import WorkerReport

# The time until a worker counts a request, and until a report is read: a request sent this shortly before a report
# arrived is not included in it.
_TRANSIT_MS: Final = 50.0

_Place = tuple[Bucket, int]
_Partitions = Mapping[Bucket, Sequence[int]]


@dataclass(slots=True, eq=False)
class KnownWorker:
    """A worker: its newest report, and the requests that this gateway has sent to it since."""

    report: WorkerReport
    received_unix_ms: float
    breaker: Breaker
    _num_sent: int = 0
    _work_ms: float = 0.0
    _recent: deque[tuple[float, Bucket]] = field(default_factory=deque)
    _tried_unix_ms: dict[Bucket, float] = field(default_factory=dict)

    def observe(self, report: WorkerReport, now_unix_ms: float) -> None:
        """Store a newer report. It includes all requests except those sent within the last `_TRANSIT_MS`."""
        self.report, self.received_unix_ms = report, now_unix_ms
        self._num_sent, self._work_ms = 0, 0.0
        self._forget_older(now_unix_ms)
        for _, bucket in self._recent:
            self._count(bucket)

    def record_send(self, bucket: Bucket, now_unix_ms: float) -> None:
        """Count a request that this gateway has published and this worker will get."""
        self._forget_older(now_unix_ms)
        self._recent.append((now_unix_ms, bucket))
        self._count(bucket)

    def eta_ms(self, bucket: Bucket, now_unix_ms: float, *, cold: bool = False) -> float | None:
        """Return the time from now to the first token of a request sent now; None if the worker reports no estimate.
        `cold`: the worker holds no KV of the conversation."""
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
        """Return whether the worker reports a version as loaded; True for None."""
        return revision is None or revision in self.report.revisions

    @property
    def is_busy(self) -> bool:
        """Return whether the worker has requests, by its report and what was sent since."""
        return self.report.running + self.report.waiting + self._num_sent > 0

    def may_try(self, bucket: Bucket, now_unix_ms: float, *, interval_ms: float) -> bool:
        """Return whether a request may be sent to a worker in spite of its prediction: once per interval, to find out
        if the prediction is wrong."""
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
    """The known workers; owned by the gateway's event loop. `reader` takes constant time if a worker reads the
    partition, and time proportional to the number of workers otherwise."""

    def __init__(self, *, ttl_ms: float, breaker: BreakerPolicy | None = None) -> None:
        """Create an empty fleet. After `ttl_ms` without a report a worker predicts nothing, and `expire` forgets it."""
        self._ttl_ms = ttl_ms
        self._breaker = breaker or BreakerPolicy()
        self._known: dict[str, KnownWorker] = {}
        self._readers: dict[_Place, KnownWorker] = {}
        self._owners: dict[_Place, KnownWorker] = {}  # the worker that reads it, or read it last
        self.slots = 0
        self._empty_since_ms: float | None = None

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, worker_id: str) -> bool:
        return worker_id in self._known

    def observe(self, report: WorkerReport, now_unix_ms: float) -> None:
        """Store a worker's report."""
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
        """Forget a worker that leaves; return whether it was known."""
        known = self._known.pop(worker_id, None)
        if known is None:
            return False
        self.slots -= known.report.slots
        self._hand_over(known, known.report.partitions, {})
        return True

    def expire(self, now_unix_ms: float) -> list[str]:
        """Forget the workers that have not reported for too long; return their names."""
        silent = [name for name, known in self._known.items() if not self._fresh(known, now_unix_ms)]
        for name in silent:
            self.forget(name)
        self._empty_since_ms = None if self._known else self._empty_since_ms or now_unix_ms
        return silent

    def is_empty(self, now_unix_ms: float) -> bool:
        """Return whether there has been no worker for as long as a silent one is waited for. `expire` notes it."""
        since_ms = self._empty_since_ms
        return not self._known and since_ms is not None and now_unix_ms - since_ms >= self._ttl_ms

    def owner(self, bucket: Bucket, partition: int | None) -> KnownWorker | None:
        """Return the worker that reads the partition, or read it last; None if no worker has reported it."""
        return self._owners.get((bucket, partition)) if partition is not None else None

    def open_breakers(self) -> dict[str, Breaker]:
        """Return the breakers that are not closed, by worker."""
        owners = (*self._owners.values(), *self._known.values())
        return {each.report.worker_id: each.breaker for each in owners if each.breaker.state is not BreakerState.CLOSED}

    def reader(self, bucket: Bucket, partition: int | None, now_unix_ms: float) -> KnownWorker | None:
        """Return the worker that will get a request of that partition. If no worker reports the partition, as in a
        rebalance, return the one with the shortest estimate for the bucket; None if no worker serves the bucket."""
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
        """Return the predicted waits of the partitions whose workers may be sent a request now. Workers without the
        version are left out, unless no worker has loaded it."""
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

    def by_version(self, bucket: Bucket, home: int, now_unix_ms: float, revision: Revision | None) -> int:
        """Return a key's partition by its hash, `home`; if workers that have the version loaded read only other
        partitions, one of these, the same at every gateway."""
        reader = self._readers.get((bucket, home))
        if reader is not None and reader.has(revision) and self._fresh(reader, now_unix_ms):
            return home
        having = sorted(
            number
            for (of, number), known in self._readers.items()
            if of == bucket and known.has(revision) and self._fresh(known, now_unix_ms)
        )
        return having[home % len(having)] if having else home

    def serves(self, bucket: Bucket, now_unix_ms: float, revision: Revision | None = None) -> bool:
        """Return whether a worker has recently reported that it serves the bucket with this version loaded. None stands
        for any version."""
        return any(
            bucket in known.report.buckets and known.has(revision) and self._fresh(known, now_unix_ms)
            for known in self._known.values()
        )

    def mean_service_ms(self) -> dict[Bucket, float]:
        """Return the mean machine time of one request by bucket, over the known workers."""
        by_bucket: dict[Bucket, list[float]] = {}
        for known in self._known.values():
            for bucket, ms in known.report.service_ms.items():
                by_bucket.setdefault(bucket, []).append(ms)
        return {bucket: sum(each) / len(each) for bucket, each in by_bucket.items()}

    def _fresh(self, known: KnownWorker, now_unix_ms: float) -> bool:
        """Return whether a report is recent by this gateway's clock. A report from the future, after the clock was set
        back, is not."""
        return abs(now_unix_ms - known.received_unix_ms) <= self._ttl_ms

    def _hand_over(self, known: KnownWorker, before: _Partitions, now: _Partitions) -> None:
        """Assign partitions according to a worker's report. The worker becomes the owner of partitions that are new in
        it, and stays the owner of those that are gone until another worker reports them."""
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


# Smaller differences are due to the report's way through Kafka and to network delays.
_DIFFERS_MS: Final = 1_000.0
_LASTS_MS: Final = 5_000.0


@dataclass(slots=True)
class WorkerClocks:
    """The workers whose clocks differ from the gateway's."""

    _differs_since: dict[str, float] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)

    def differs(self, worker_id: str, behind_ms: float, now_unix_ms: float) -> bool:
        """Record a report that was written `behind_ms` ago by the worker's clock. Return True once per episode, when
        the difference has lasted for `_LASTS_MS`."""
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
