"""Fold what gateways and workers report of one pool into what its scaler sees. Pure."""

import math
from collections import deque
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final

from msgspec import Struct

from ops.scaling.autoscale.basis import Basis
from ops.scaling.autoscale.counts import MINUTE_MS, Counts, Sample, asked_work
from ops.scaling.autoscale.scaler import Seen
from ops.scaling.autoscale.variants import Variants
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.messages import Bucket
from shared.wire.reports import WorkerReport
from shared.wire.scaling import BucketDemand, DemandReport
from shared.wire.topics import BUCKETS

_LEAST_MS: Final = 10_000.0  # a gateway's rate counts after reports of this length
_DEMAND_SILENT_MS: Final = 5_000.0
_WORKER_SILENT_MS: Final = 3_000.0  # as for gateways
_GONE_MS: Final = 60_000.0  # who is silent for longer has died
_COLD_STARTS: Final = 5
_UNPRICED_MS: Final = 1.0
_MOST_SLOTS: Final = 4_096  # more are no worker's, and would not fit into a simulation
_LONGEST_START_MS: Final = 1_800_000.0  # a worker that takes longer is not the one that was started


class Pool(Struct, frozen=True, kw_only=True):
    """The workers of one lane that serve the same buckets and bear the pool's name, or none."""

    name: str = "main"
    lane: Lane = CHAMPION
    buckets: tuple[Bucket, ...] = BUCKETS

    def shares(self, report: WorkerReport) -> bool:
        """Return whether a worker answers the same questions as this pool's: it may be another pool's."""
        return report.lane == self.lane and set(report.buckets) == set(self.buckets)

    def has(self, report: WorkerReport) -> bool:
        return self.shares(report) and report.pool in {"", self.name}


@dataclass(slots=True)
class _Gateway:
    """A gateway process by its counts, from its first report or its start on."""

    asked: dict[Bucket, BucketDemand]
    received_unix_ms: float
    counts: Counts


@dataclass(slots=True)
class Evidence:
    """Owned by the event loop of the autoscaler; `now` is its clock, and a sender's own clock only dates its counts."""

    pool: Pool
    variants: Variants | None = None
    """The pools of the lane by price; None where pools share its demand by their workers."""
    service_ms: dict[Bucket, float] = field(default_factory=dict)
    """The machine time of one request, the last that workers reported."""
    cold_starts_ms: deque[float] = field(default_factory=lambda: deque(maxlen=_COLD_STARTS))
    """The last times from a growth to a new worker's first report."""
    listens_unix_ms: float | None = None
    """Since when the workers' reports are read; None before."""
    _gateways: dict[tuple[str, int], _Gateway] = field(default_factory=dict)  # by id and the start of its counts
    _workers: dict[str, tuple[WorkerReport, float]] = field(default_factory=dict)
    _others: dict[str, float] = field(default_factory=dict)  # workers of other pools that share the demand: last report
    _awaited: deque[float] = field(default_factory=deque)

    # --- what is reported

    def hear_gateway(self, gateway_id: str, report: DemandReport | None, now: float) -> None:
        """Take in a gateway's counts; None: it ends. One that starts again counts from zero."""
        ended = [
            key
            for key, known in self._gateways.items()
            if key[0] == gateway_id and (report is None or known.counts.samples[-1].unix_ms <= report.since_unix_ms)
        ]
        for key in ended:  # not one that reports at the same time: two gateways may have one id by mistake
            del self._gateways[key]
        if report is None:
            return
        asked = {
            bucket: each for bucket, each in report.asked.get(self.pool.lane, {}).items() if bucket in self.pool.buckets
        }
        known = self._gateways.get((gateway_id, report.since_unix_ms))
        if known is None:
            born = bool(ended) or report.unix_ms - report.since_unix_ms <= MINUTE_MS
            first = Sample(float(report.since_unix_ms if born else report.unix_ms))
            known = _Gateway({} if born else asked, now, Counts(deque([first]), born))
            self._gateways[gateway_id, report.since_unix_ms] = known
        _, work_ms, requests, judged, in_time = known.counts.samples[-1]
        for bucket, each in asked.items():
            last = known.asked.get(bucket, BucketDemand())
            work_ms += self._work_ms(bucket, each.requests - last.requests, each.work_ms - last.work_ms)
            requests += each.requests - last.requests
            judged += each.judged - last.judged
            in_time += each.in_time - last.in_time
        known.asked, known.received_unix_ms = asked, now
        known.counts.add(Sample(float(report.unix_ms), work_ms, requests, judged, in_time))

    def hear_worker(self, worker_id: str, report: WorkerReport | None, now: float) -> None:
        """Take in a worker's report; None: it leaves."""
        if report is None or not self.pool.has(report):
            self._workers.pop(worker_id, None)
            self._others.pop(worker_id, None)
            if report is not None and self.pool.shares(report):
                self._others[worker_id] = now
            return
        self._expire_awaited(now)
        if worker_id not in self._workers and self._awaited:
            self.cold_starts_ms.append(now - self._awaited.popleft())
        self._workers[worker_id] = report, now

    def change(self, before: int, wanted: int, now: float) -> None:
        """Record a change of the wanted size: the workers of a growth are expected to report."""
        self._awaited.extend([now] * (wanted - before))
        while self._awaited and wanted < before:
            self._awaited.pop()
            before -= 1

    def _expire_awaited(self, now: float) -> None:
        """Stop waiting for workers that have not come: a worker that comes now is a replacement, not one of them."""
        while self._awaited and now - self._awaited[0] > _LONGEST_START_MS:
            self._awaited.popleft()

    # --- what it comes to

    def workers(self, now: float) -> dict[str, WorkerReport]:
        """Return the newest reports of the workers that are there."""
        return {name: report for name, (report, heard) in self._workers.items() if now - heard <= _WORKER_SILENT_MS}

    def seen(self, now: float, *, expected: float | None, lag: int, loading: int | None = None) -> Seen:
        """Return what is seen at a moment. `loading`: None if it is not known what was started."""
        for silent in [name for name, each in self._gateways.items() if now - each.received_unix_ms > _GONE_MS]:
            del self._gateways[silent]
        for name in [name for name, (_, heard) in self._workers.items() if now - heard > _GONE_MS]:
            del self._workers[name]
        self._others = {name: heard for name, heard in self._others.items() if now - heard <= _WORKER_SILENT_MS}
        self._expire_awaited(now)
        live = self.workers(now)
        self._price(live)
        fresh = [each.counts for each in self._gateways.values() if now - each.received_unix_ms <= _DEMAND_SILENT_MS]
        known = [each for each in fresh if each.whole or each.samples[-1][0] - each.samples[0][0] >= _LEAST_MS]
        minute, share = [each.rates(MINUTE_MS) for each in known], self._share_of_demand(len(live))
        lane = asked_work(known) if known else None  # of all pools, in this pool's machine time
        rest = share if self.variants is None else self.variants.rest(now)
        return Seen(
            now_unix_ms=now,
            asked=None if lane is None or rest is None else lane * rest,
            silent_pool="" if self.variants is None else self.variants.silent(now),
            served=None if lane is None else lane * share,
            expected=expected,
            found=len(live) if live or self._hears_of_nobody(now) else None,
            loading=len(self._awaited) if loading is None else loading,
            lag=lag if self.variants is None else math.ceil(lag * (rest or 0.0)),
            waiting=sum(report.waiting for report in live.values()),
            whole=len(known) == len(self._gateways) and len(live) == len(self._workers),
            judged=round(sum(each.judged for each in minute) * MINUTE_MS / 1_000),
            in_time=round(sum(each.in_time for each in minute) * MINUTE_MS / 1_000),
        )

    def _share_of_demand(self, num_live: int) -> float:
        """Return this pool's share of the lane's demand. The lane's partitions are divided among the workers of all its
        pools."""
        return num_live / (num_live + len(self._others)) if num_live else 0.0 if self._others else 1.0

    def basis(self, now: float) -> Basis:
        """Return what the pool's capacity is simulated by: the law of the worker in the middle, the most slots, and how
        the requests of the gateways divide into buckets."""
        live = self.workers(now).values()
        laws = [report.law for report in live if report.law is not None and report.law.can_be_simulated]
        laws.sort(key=lambda law: law.decode_ms + law.decode_ms_per_row + law.prefill_ms_per_token)
        requests = {
            bucket: sum(each.asked[bucket].requests for each in self._gateways.values() if bucket in each.asked)
            for bucket in self.pool.buckets
        }
        total = sum(requests.values())
        return Basis(
            law=laws[len(laws) // 2] if laws else None,
            slots=min(max((report.slots for report in live), default=0), _MOST_SLOTS),
            parts={bucket: count / total for bucket, count in requests.items() if count},
        )

    def _hears_of_nobody(self, now: float) -> bool:
        """Return whether no worker is there: none is silent, and each has had the time to report."""
        listens = self.listens_unix_ms
        return not self._workers and listens is not None and now - listens > _WORKER_SILENT_MS

    def _price(self, live: dict[str, WorkerReport]) -> None:
        for bucket in self.pool.buckets:
            if each := [report.service_ms[bucket] for report in live.values() if bucket in report.service_ms]:
                self.service_ms[bucket] = fmean(each)

    def _work_ms(self, bucket: Bucket, requests: int, work_ms: float) -> float:
        """Return the machine time of requests, in ms.

        `work_ms` is a gateway's figure: that of the worker that answers, perhaps of another variant; 0 before the
        gateway has seen a worker. A request without a known price counts as `_UNPRICED_MS`, so that an empty pool gets
        its first worker, which reports the price.
        """
        price = self.service_ms.get(bucket)
        if price is not None and (self.variants is not None or work_ms <= 0.0):
            return requests * price
        return work_ms if work_ms > 0.0 else requests * _UNPRICED_MS
