"""Fold what gateways and workers report of one pool into what its scaler sees. Pure."""

import math
from collections import deque
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final

from msgspec import Struct

from ops.scaling.autoscale.scaler import Seen
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.messages import Bucket, WorkerReport
from shared.wire.scaling import Asked, DemandReport
from shared.wire.topics import BUCKETS

MINUTE_MS: Final = 60_000.0
_BURST_MS: Final = 10_000.0
_LEAST_MS: Final = 10_000.0  # a gateway's rate counts after reports of this length
_DEMAND_SILENT_MS: Final = 5_000.0
_WORKER_SILENT_MS: Final = 3_000.0  # as for gateways
_GONE_MS: Final = 60_000.0  # who is silent for longer has died
_COLD_STARTS: Final = 5


class Pool(Struct, frozen=True, kw_only=True):
    """The workers of one lane that serve the same buckets."""

    name: str = "main"
    lane: Lane = CHAMPION
    buckets: tuple[Bucket, ...] = BUCKETS

    def has(self, report: WorkerReport) -> bool:
        return report.lane == self.lane and set(report.buckets) == set(self.buckets)


@dataclass(slots=True)
class _Gateway:
    """A gateway by its counts: `samples` are (its clock, work in ms, requests) since it was heard or began."""

    since_unix_ms: int
    asked: dict[Bucket, Asked]
    heard_unix_ms: float
    samples: deque[tuple[float, float, int]]
    born_here: bool

    def asked_in(self, window_ms: float) -> tuple[float, float]:
        """Return the work a second and the requests a second of the last `window_ms`."""
        at, work_ms, requests = self.samples[-1]
        before = next((each for each in reversed(self.samples) if each[0] <= at - window_ms), self.samples[0])
        span_ms = max(at - before[0], window_ms if self.born_here else 1.0)
        return (work_ms - before[1]) / span_ms, (requests - before[2]) / span_ms * 1_000


@dataclass(slots=True)
class Evidence:
    """Owned by the event loop of the autoscaler; `now` is its clock, and a sender's own clock only dates its counts."""

    pool: Pool
    service_ms: dict[Bucket, float] = field(default_factory=dict)
    """The machine time of one request, the last that workers reported."""
    cold_starts_ms: deque[float] = field(default_factory=lambda: deque(maxlen=_COLD_STARTS))
    """The last times from a growth to a new worker's first report."""
    listens_unix_ms: float | None = None
    """Since when the workers' reports are read; None before."""
    _gateways: dict[str, _Gateway] = field(default_factory=dict)
    _workers: dict[str, tuple[WorkerReport, float]] = field(default_factory=dict)
    _awaited: deque[float] = field(default_factory=deque)

    # --- what is reported

    def hear_gateway(self, gateway_id: str, report: DemandReport | None, now: float) -> None:
        """Take in a gateway's counts; None: it ends."""
        if report is None:
            self._gateways.pop(gateway_id, None)
            return
        asked = {
            bucket: each for bucket, each in report.asked.get(self.pool.lane, {}).items() if bucket in self.pool.buckets
        }
        known = self._gateways.get(gateway_id)
        if known is None or known.since_unix_ms != report.since_unix_ms:
            born = known is not None or report.unix_ms - report.since_unix_ms <= MINUTE_MS
            first = (float(report.since_unix_ms), 0.0, 0) if born else (float(report.unix_ms), 0.0, 0)
            before = {} if born else asked
            known = _Gateway(report.since_unix_ms, before, now, deque([first]), born)
            self._gateways[gateway_id] = known
        _, work_ms, requests = known.samples[-1]
        for bucket, each in asked.items():
            last = known.asked.get(bucket, Asked())
            work_ms += self._work_ms(bucket, each.requests - last.requests, each.work_ms - last.work_ms)
            requests += each.requests - last.requests
        known.asked, known.heard_unix_ms = asked, now
        known.samples.append((float(report.unix_ms), work_ms, requests))
        while known.samples[1][0] <= report.unix_ms - MINUTE_MS:
            known.samples.popleft()

    def hear_worker(self, worker_id: str, report: WorkerReport | None, now: float) -> None:
        """Take in a worker's report; None: it leaves."""
        if report is None or not self.pool.has(report):
            self._workers.pop(worker_id, None)
            return
        if worker_id not in self._workers and self._awaited:
            self.cold_starts_ms.append(now - self._awaited.popleft())
        self._workers[worker_id] = report, now

    def change(self, before: int, wanted: int, now: float) -> None:
        """Record a change of the wanted size: the workers of a growth are expected to report."""
        self._awaited.extend([now] * (wanted - before))
        while self._awaited and wanted < before:
            self._awaited.pop()
            before -= 1

    # --- what it comes to

    def workers(self, now: float) -> dict[str, WorkerReport]:
        """Return the newest reports of the workers that are there."""
        return {name: report for name, (report, heard) in self._workers.items() if now - heard <= _WORKER_SILENT_MS}

    def seen(self, now: float, *, expected: float | None, lag: int, loading: int | None = None) -> Seen:
        """Return what is seen at a moment. `loading`: None if it is not known what was started."""
        for silent in [name for name, each in self._gateways.items() if now - each.heard_unix_ms > _GONE_MS]:
            del self._gateways[silent]
        for silent in [name for name, (_, heard) in self._workers.items() if now - heard > _GONE_MS]:
            del self._workers[silent]
        live = self.workers(now)
        self._price(live)
        fresh = [each for each in self._gateways.values() if now - each.heard_unix_ms <= _DEMAND_SILENT_MS]
        known = [each for each in fresh if each.born_here or each.samples[-1][0] - each.samples[0][0] >= _LEAST_MS]
        return Seen(
            now_unix_ms=now,
            asked=_asked(known) if known else None,
            expected=expected,
            found=len(live) if live or self._hears_of_nobody(now) else None,
            loading=len(self._awaited) if loading is None else loading,
            lag=lag,
            waiting=sum(report.waiting for report in live.values()),
            whole=len(known) == len(self._gateways) and len(live) == len(self._workers),
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
        """Return the work of requests; a gateway that has never known a worker has no price for them."""
        return work_ms if work_ms > 0.0 else requests * self.service_ms.get(bucket, 0.0)


def _asked(gateways: list[_Gateway]) -> float:
    """Return the work a second that is asked: the mean of the last minute; or that of the last seconds, less what
    chance makes of so few requests, where that is more."""
    minute = sum(each.asked_in(MINUTE_MS)[0] for each in gateways)
    lately = [each.asked_in(_BURST_MS) for each in gateways]
    requests = sum(per_s for _, per_s in lately) * _BURST_MS / 1_000
    sure = 1.0 - 2.0 / math.sqrt(requests) if requests > 0 else 0.0
    return max(minute, sure * sum(work for work, _ in lately))
