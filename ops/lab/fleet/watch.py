"""Measure what a fleet's scaler sees: sums over the last minute, and a forecast of each minute. Pure."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from ops.scaling.autoscale.scaler import BURST_MS, Seen, asked_lately
from ops.scaling.forecast.forecaster import Forecaster

MINUTE_MS: Final = 60_000.0
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
    """Computes a fleet's `Seen`. `work_s` is the machine time of a request. `forecaster` gets each minute's mean, and
    returns the bound that is kept with `quantile` probability, `steps` minutes ahead."""

    work_s: float
    forecaster: Forecaster | None = None
    steps: int = 1
    quantile: float = 0.9
    expected: float | None = None
    _asked: deque[tuple[float, float, float]] = field(default_factory=deque)  # (time, requests, of them in time)
    _sum: float = 0.0
    _in_time: float = 0.0
    _busy: deque[tuple[float, float, float]] = field(default_factory=deque)
    _minute: int = 0

    def see(self, now_ms: float, requests: float, workers: Workers) -> Seen:
        """Add the arrivals and the workers' results since the last moment; return what the scaler sees now."""
        elapsed_ms = now_ms - (self._asked[-1][0] if self._asked else 0.0)
        self._asked.append((now_ms, requests, workers.in_time))
        self._sum += requests
        self._in_time += workers.in_time
        while self._asked[0][0] <= now_ms - MINUTE_MS:
            _, old, old_in_time = self._asked.popleft()
            self._sum -= old
            self._in_time -= old_in_time
        self._busy.append((now_ms, workers.busy_ms, workers.serving * elapsed_ms))
        while self._busy[0][0] <= now_ms - _BUSY_MS and len(self._busy) > 1:
            self._busy.popleft()
        minute = self._sum * 1_000 / min(MINUTE_MS, max(now_ms, 1.0))
        self._forecast(now_ms, minute * self.work_s)
        time_ms = sum(ms for _, _, ms in self._busy)
        return Seen(
            now_unix_ms=now_ms,
            asked=asked_lately(minute, *self._burst(now_ms)) * self.work_s,
            expected=self.expected,
            found=workers.serving,
            loading=workers.loading,
            busy=sum(ms for _, ms, _ in self._busy) / time_ms if time_ms else 0.0,
            lag=round(workers.running + workers.waiting),
            waiting=round(workers.waiting),
            judged=round(self._sum),
            in_time=round(self._in_time),
        )

    def _burst(self, now_ms: float) -> tuple[float, float]:
        """Return the rate of requests in the last seconds, and their number."""
        requests, at = 0.0, 0.0
        for at, came, _ in reversed(self._asked):
            if at <= now_ms - BURST_MS:
                break
            requests += came
        else:
            at = 0.0
        since_ms = now_ms - at
        return requests * 1_000 / since_ms if since_ms else 0.0, requests

    def _forecast(self, now_ms: float, asked: float) -> None:
        minute = int(now_ms // MINUTE_MS)
        if self.forecaster is None or minute == self._minute:
            return
        self._minute = minute
        self.forecaster.observe(asked)
        self.expected = self.forecaster.upper(self.steps, self.quantile)
