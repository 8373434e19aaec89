"""The workers as this gateway knows them: pure. When would a request that is sent now get its first token?

A worker reports a few times a second. In between, what this gateway has sent since stands on top, less what the machine
can have done in that time, so a burst is seen before the next report.

A report is as fresh as its receipt here: a worker's own clock, which may be minutes off, is compared and never used.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from shared.messages import Bucket, WorkerReport
from shared.topics import BUCKETS

# A request takes about so long until a worker counts it, and a report until it is read: what was sent just before a
# report came is not in it yet.
_TRANSIT_MS: Final = 50.0
_MAX_RECENT: Final = 10_000


@dataclass(slots=True)
class _Known:
    report: WorkerReport
    received_unix_ms: float
    # How many requests of each bucket this gateway had sent in all, as far as the report knows of them.
    counted: dict[Bucket, int]


class Fleet:
    """Owned by the gateway's event loop."""

    def __init__(self, *, ttl_ms: float) -> None:
        """`ttl_ms`: a worker that has been silent for longer predicts nothing, and `expire` forgets it."""
        self._ttl_ms = ttl_ms
        self._known: dict[str, _Known] = {}
        self._serving: dict[Bucket, list[_Known]] = {bucket: [] for bucket in BUCKETS}
        self._sent: dict[Bucket, int] = dict.fromkeys(BUCKETS, 0)
        self._recent: deque[tuple[float, Bucket]] = deque(maxlen=_MAX_RECENT)

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, worker_id: str) -> bool:
        return worker_id in self._known

    @property
    def slots(self) -> int:
        return sum(known.report.slots for known in self._known.values())

    def observe(self, report: WorkerReport, now_unix_ms: float) -> None:
        """Take in a report."""
        counted = self._sent.copy()
        for sent_unix_ms, bucket in reversed(self._recent):
            if sent_unix_ms <= now_unix_ms - _TRANSIT_MS:
                break
            counted[bucket] -= 1
        self._known[report.worker_id] = _Known(report, now_unix_ms, counted)
        self._list()

    def forget(self, worker_id: str) -> bool:
        """The worker leaves; False where it was not known."""
        known = self._known.pop(worker_id, None) is not None
        self._list()
        return known

    def expire(self, now_unix_ms: float) -> list[str]:
        """Forget the silent; returns who they were."""
        silent = [name for name, known in self._known.items() if not self._fresh(known, now_unix_ms)]
        for name in silent:
            del self._known[name]
        self._list()
        return silent

    def sent(self, bucket: Bucket, now_unix_ms: float) -> None:
        """This gateway has published a request."""
        self._sent[bucket] += 1
        self._recent.append((now_unix_ms, bucket))

    def eta_ms(self, bucket: Bucket, now_unix_ms: float) -> float | None:
        """From now to the first token of a request sent now; None where no worker is known that serves the bucket.

        The soonest of all workers: the broker chooses the worker, by the session's key, and one that turns out to be
        busier refuses what it cannot meet by itself.
        """
        soonest: float | None = None
        for known in self._serving[bucket]:
            if self._fresh(known, now_unix_ms):
                eta = self._eta_at(known, bucket, now_unix_ms)
                if eta is not None and (soonest is None or eta < soonest):
                    soonest = eta
        return soonest

    def _fresh(self, known: _Known, now_unix_ms: float) -> bool:
        """By this gateway's own clock; should that be set back, a report from the time to come is not fresh either."""
        return abs(now_unix_ms - known.received_unix_ms) <= self._ttl_ms

    def _eta_at(self, known: _Known, bucket: Bucket, now_unix_ms: float) -> float | None:
        report = known.report
        first_token_ms = report.first_token_ms.get(bucket)
        if first_token_ms is None:
            return None
        num_sent = work_ms = 0.0
        for other, service_ms in report.service_ms.items():
            share = (self._sent[other] - known.counted[other]) / max(1, len(self._serving[other]))
            num_sent += share
            work_ms += share * service_ms
        free_slots = max(0, report.slots - report.running - report.waiting)
        ahead_ms = work_ms * (1 - free_slots / num_sent) if num_sent > free_slots else 0.0
        queue_ms = min(report.backlog_ms, first_token_ms)
        elapsed_ms = max(0.0, now_unix_ms - known.received_unix_ms)
        return first_token_ms - queue_ms + max(0.0, queue_ms + ahead_ms - elapsed_ms)

    def _list(self) -> None:
        for bucket in BUCKETS:
            self._serving[bucket] = [known for known in self._known.values() if bucket in known.report.buckets]
