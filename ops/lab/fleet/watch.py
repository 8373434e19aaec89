"""Measure what a fleet's scaler sees, as the autoscaler computes it from its gateways' counts. Pure."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from ops.scaling.autoscale.counts import MINUTE_MS, Counts, Sample, asked_work
from ops.scaling.autoscale.expectation import Expectation
from ops.scaling.autoscale.scaler import Seen

_BUSY_MS: Final = 15_000.0  # as often as a metrics server asks


@dataclass(frozen=True, slots=True)
class Workers:
    """The workers' state at a moment: how many serve and how many load; the number of requests that run and wait at all
    serving workers; and since the last moment the time that these have computed and the requests that they answered in
    time."""

    serving: int
    loading: int
    running: float
    waiting: float
    busy_ms: float
    in_time: float = 0.0


@dataclass(slots=True, kw_only=True)
class Watch:
    """Computes a fleet's `Seen`. `work_ms` is the machine time of a request, and `cold_start_ms` how far ahead
    `expectation` looks."""

    work_ms: float
    expectation: Expectation | None = None
    cold_start_ms: float = 0.0
    _counts: Counts = field(default_factory=lambda: Counts(deque([Sample(0.0)]), whole=False))
    _busy: deque[tuple[float, float, float]] = field(default_factory=deque)

    def see(self, now_ms: float, requests: float, workers: Workers) -> Seen:
        """Add the arrivals and the workers' results since the last moment; return what the scaler sees now."""
        last = self._counts.samples[-1]
        came, in_time = last.requests + requests, last.in_time + workers.in_time
        self._counts.add(Sample(now_ms, came * self.work_ms, came, came, in_time))
        self._busy.append((now_ms, workers.busy_ms, workers.serving * (now_ms - last.unix_ms)))
        while self._busy[0][0] <= now_ms - _BUSY_MS and len(self._busy) > 1:
            self._busy.popleft()
        asked, minute = asked_work([self._counts]), self._counts.rates(MINUTE_MS)
        if self.expectation is not None:
            self.expectation.end_minute(now_ms, asked, self.cold_start_ms)
        time_ms = sum(ms for _, _, ms in self._busy)
        return Seen(
            now_unix_ms=now_ms,
            asked=asked,
            expected=None if self.expectation is None else self.expectation.expected,
            found=workers.serving,
            loading=workers.loading,
            busy=sum(ms for _, ms, _ in self._busy) / time_ms if time_ms else 0.0,
            lag=round(workers.running + workers.waiting),
            waiting=round(workers.waiting),
            judged=round(minute.judged * MINUTE_MS / 1_000),
            in_time=round(minute.in_time * MINUTE_MS / 1_000),
        )
