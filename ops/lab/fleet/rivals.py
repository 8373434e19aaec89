"""The scalers that ours is compared with, each with its documented defaults. Pure.

Each sees what it would see of the product: KEDA the records that no worker has committed, a HorizontalPodAutoscaler the
workers' utilisation, Knative, llm-d and Dynamo the requests that run and wait at the workers. All workers count as
equal.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from ops.lab.fleet.hpa import SYNC_MS, Behaviour, of_average, of_utilisation
from ops.scaling.autoscale.scaler import Seen, Wanted

_SENSITIVITY: Final = 0.8
_STABLE_MS: Final = 60_000.0
_PANIC_MS: Final = 6_000.0
_PANIC_THRESHOLD: Final = 2.0
_SHRINK_RATE: Final = 2.0
_PEAK_MS: Final = 60_000.0
_QUEUE_THRESHOLD: Final = 5.0
_QUEUE_TRIGGER: Final = 3.0
_KV_TRIGGER: Final = 0.1


@dataclass(slots=True, kw_only=True)
class Static:
    """A fleet of constant size."""

    workers: int
    name: str = "static"
    every_ms: float = 60_000.0

    def decide(self, seen: Seen) -> Wanted:  # noqa: ARG002 - it looks at nothing
        return Wanted(workers=self.workers, reason="fixed")


@dataclass(slots=True, kw_only=True)
class KedaOnLag:
    """KEDA's Kafka scaler: an autoscaler that asks for one worker for each `lagThreshold` records of lag in all
    partitions."""

    behaviour: Behaviour
    lag_threshold: float = 10.0
    name: str = "keda"
    every_ms: float = SYNC_MS
    _size: int = 0

    def decide(self, seen: Seen) -> Wanted:
        self._size = self._size or (seen.found or 0) + seen.loading
        desired = of_average(seen.lag, self.lag_threshold, replicas=self._size)
        self._size = self.behaviour.follow(desired, self._size, seen.now_unix_ms)
        return Wanted(workers=self._size, reason=f"lag {seen.lag}, {self.lag_threshold:g} a worker: {desired}")


@dataclass(slots=True, kw_only=True)
class HpaOnBusy:
    """A HorizontalPodAutoscaler on utilisation, with a default target of 0.8."""

    behaviour: Behaviour
    target: float = 0.8
    name: str = "hpa"
    every_ms: float = SYNC_MS

    def decide(self, seen: Seen) -> Wanted:
        ready = seen.found or 0
        desired = of_utilisation(seen.busy, self.target, ready=ready, loading=seen.loading)
        size = self.behaviour.follow(desired, ready + seen.loading, seen.now_unix_ms)
        return Wanted(workers=size, reason=f"{seen.busy:.0%} busy, {self.target:.0%} asked for: {desired}")


@dataclass(slots=True, kw_only=True)
class KnativeOnConcurrency:
    """Knative's autoscaler, which KServe uses by default: a worker for each `target` requests in flight, in the mean of
    a minute. While the mean of 6 s asks for twice the ready workers it is in panic: the larger of the two counts, and
    nothing shrinks until a minute after. (`pkg/autoscaler/scaling/autoscaler.go`; at most halved in one decision.)"""

    target: float
    least: int
    most: int
    name: str = "knative"
    every_ms: float = 2_000.0
    _flights: deque[tuple[float, float]] = field(default_factory=deque)
    _panic_ms: float | None = None
    _most_in_panic: int = 0

    def decide(self, seen: Seen) -> Wanted:
        now, ready = seen.now_unix_ms, max(seen.found or 0, 1)
        self._flights.append((now, seen.lag))
        while self._flights[0][0] <= now - _STABLE_MS:
            self._flights.popleft()
        lately = [lag for at, lag in self._flights if at > now - _PANIC_MS]
        stable = sum(lag for _, lag in self._flights) / len(self._flights)
        desired = max(math.ceil(stable / self.target), math.floor(ready / _SHRINK_RATE))
        burst = math.ceil(sum(lately) / len(lately) / self.target)
        if burst / ready >= _PANIC_THRESHOLD:
            self._panic_ms = now
        elif self._panic_ms is not None and now > self._panic_ms + _STABLE_MS:
            self._panic_ms, self._most_in_panic = None, 0
        if self._panic_ms is not None:
            desired = self._most_in_panic = max(desired, burst, self._most_in_panic)
        size = min(max(desired, self.least), self.most)
        return Wanted(workers=size, reason=f"{stable:.1f} in flight, {self.target:g} a worker: {desired}")


@dataclass(slots=True, kw_only=True)
class SaturationOfLlmd:
    """llm-d's Workload Variant Autoscaler by saturation, followed by a HorizontalPodAutoscaler (its first, percentage
    analyzer). Peaks of the last minute count. One worker more if the spare KV below `threshold` is less than 0.1 or the
    spare queue below 5 less than 3; one less if N-1 workers would leave more than that. Nothing while a worker loads.
    The slots in use are the KV cache in use here."""

    behaviour: Behaviour
    slots: int
    threshold: float = 0.8
    name: str = "llm-d"
    every_ms: float = 30_000.0
    _peaks: deque[tuple[float, float, float]] = field(default_factory=deque)

    def decide(self, seen: Seen) -> Wanted:
        found, now = max(seen.found or 0, 1), seen.now_unix_ms
        self._peaks.append((now, (seen.lag - seen.waiting) / found / self.slots, seen.waiting / found))
        while self._peaks[0][0] < now - _PEAK_MS:
            self._peaks.popleft()
        used, queue = (max(values) for values in list(zip(*self._peaks, strict=True))[1:])
        size = found + seen.loading
        if not seen.loading:
            if self._is_short(used, queue):
                size += 1
            elif found > 1 and not self._is_short(used * found / (found - 1), queue * found / (found - 1)):
                size -= 1
        size = self.behaviour.follow(size, found + seen.loading, now)
        return Wanted(workers=size, reason=f"{used:.0%} of the KV cache used, {queue:.1f} wait at each")

    def _is_short(self, used: float, queue: float) -> bool:
        return self.threshold - used < _KV_TRIGGER or _QUEUE_THRESHOLD - queue < _QUEUE_TRIGGER


class Latencies(Protocol):
    """A worker's latencies as functions of its load. Dynamo's planner fits both by regression; here they are the exact
    laws of the simulated engine, which is an advantage for it."""

    def first_token_ms(self, running: float, waiting: float) -> float:
        """Return the time to the first token of a request that comes now."""

    def token_ms(self, running: float) -> float:
        """Return the time between two tokens of an answer."""


@dataclass(slots=True, kw_only=True)
class DynamoReactive:
    """Dynamo's load-based planner (`load_scaling.py`, aggregated workers). Every 5 s it adds a worker if either latency
    is above its target. It removes one if both targets would be kept, by a margin of `_SENSITIVITY`, at N/(N-1) of the
    load. It does nothing while a worker loads, and treats all workers as equal."""

    latencies: Latencies
    first_token_ms: float
    token_ms: float
    least: int
    most: int
    name: str = "reactive"
    every_ms: float = 5_000.0

    def decide(self, seen: Seen) -> Wanted:
        found = seen.found or 0
        if seen.loading or not found:
            return Wanted(workers=found + seen.loading, reason="a worker loads")
        running, waiting = (seen.lag - seen.waiting) / found, seen.waiting / found
        first_ms = self.latencies.first_token_ms(running, waiting)
        token_ms = self.latencies.token_ms(running)
        size = found
        if first_ms > self.first_token_ms or token_ms > self.token_ms:
            size = found + 1
        elif found > 1 and self._would_keep(running * found / (found - 1), waiting * found / (found - 1)):
            size = found - 1
        size = min(max(size, self.least), self.most)
        return Wanted(workers=size, reason=f"first token in {first_ms:.0f} ms, one each {token_ms:.0f} ms")

    def _would_keep(self, running: float, waiting: float) -> bool:
        own_ms = self.latencies.first_token_ms(running, 0.0)
        queued_ms = self.latencies.first_token_ms(running, waiting) - own_ms
        budget_ms = (self.first_token_ms - own_ms) * _SENSITIVITY
        token_ms = self.latencies.token_ms(running + waiting)
        return queued_ms < budget_ms and token_ms < self.token_ms * _SENSITIVITY


@dataclass(slots=True, kw_only=True)
class Clairvoyant:
    """The cheapest fleet of a scaler that knows the future load: `needed(t)` workers keep the goal at `t`. A worker
    that is needed again before another could be started is kept."""

    needed: Callable[[float], int]
    cold_start_ms: float
    every_ms: float
    name: str = "clairvoyant"
    _coming: list[int] = field(default_factory=list)

    def decide(self, seen: Seen) -> Wanted:
        steps = math.ceil(self.cold_start_ms / self.every_ms)
        times = (seen.now_unix_ms + step * self.every_ms for step in range(steps + 1))
        return Wanted(workers=max(self.needed(time) for time in times), reason="what is needed until one could serve")
