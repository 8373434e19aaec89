"""Simulate a fleet by the tick: the share that its workers answer in time is read from a worker's curve. Pure.

Single requests are not simulated, so the result is right if a worker's load lasts longer than its answers' deadlines.
"""

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ops.lab.fleet.curve import Curve
from ops.lab.fleet.load import DemandTrace, Floats, Ints, shares
from ops.lab.fleet.pool import Pool
from ops.lab.fleet.watch import Watch, Workers
from ops.scaling.autoscale.scaler import Scaler

PARTITIONS: Final = 24
_DRAIN_MS: Final = 3_000.0
_STEPS: Final = 200  # of a load of 1


@dataclass(slots=True, kw_only=True)
class Played:
    """The outcome of a load. By tick: requests asked, those that the model answered in time, machines kept."""

    pool: Pool
    span_ms: float
    asked: list[float]
    in_time: list[float]
    kept: list[int]

    @property
    def attainment(self) -> float:
        return sum(self.in_time) / max(sum(self.asked), 1e-9)

    @property
    def worker_hours(self) -> float:
        return self.pool.cost_ms(self.span_ms) / 3_600_000


@dataclass(slots=True, kw_only=True)
class FleetSimulator:
    """`run` plays the load once."""

    load: DemandTrace
    scaler: Scaler
    pool: Pool
    watch: Watch
    curve: Curve
    seed: int
    _steps: list[tuple[float, ...]] = field(init=False)

    def __post_init__(self) -> None:
        loads = (np.arange(self.curve.loads[-1] * _STEPS) + 0.5) / _STEPS
        values = (self.curve.running, self.curve.waiting, self.curve.busy, self.curve.spread)
        self._steps = list(zip(*(self.curve.many(loads, each).tolist() for each in values), strict=True))

    def run(self) -> Played:
        tick_ms, per_s = self.load.tick_ms, self.load.per_s
        random = np.random.default_rng(self.seed)
        asked = random.poisson(per_s * tick_ms / 1_000).astype(np.float64)
        off = random.standard_normal(per_s.size).tolist()  # of what runs and waits at a moment
        kept, in_time = [0] * per_s.size, [0.0] * per_s.size
        decides_ms = 0.0
        for tick, came in enumerate(asked.tolist()):
            now_ms = (tick + 1) * tick_ms
            ready = self.pool.serving(now_ms - tick_ms)
            in_time[tick] = came * share_in_time(self.curve, float(per_s[tick]), ready)
            workers = self._state(float(per_s[tick]), ready, len(self.pool.kept), off[tick], in_time[tick])
            seen = self.watch.see(now_ms, came, workers)
            if now_ms >= decides_ms:
                decides_ms = now_ms + self.scaler.every_ms
                for machine in self.pool.resize(self.scaler.decide(seen).workers, now_ms)[1]:
                    if machine.ended_ms is None:
                        self.pool.end(machine, now_ms + _DRAIN_MS)
            kept[tick] = len(self.pool.kept)
        return Played(
            pool=self.pool,
            span_ms=self.load.span_ms,
            asked=asked.tolist(),
            in_time=in_time,
            kept=kept,
        )

    def _state(self, per_s: float, ready: int, kept: int, off: float, in_time: float) -> Workers:
        load = per_s / self.curve.per_s / ready if ready else 0.0
        running, waiting, busy, spread = self._steps[min(int(load * _STEPS), len(self._steps) - 1)]
        return Workers(
            serving=ready,
            loading=kept - ready,
            running=max(0.0, running * ready + off * spread * math.sqrt(ready)),
            waiting=waiting * ready,
            busy_ms=busy * ready * self.load.tick_ms,
            in_time=in_time,
        )


def share_in_time(curve: Curve, per_s: float, workers: int) -> float:
    """Return the share in time of a tick, as `in_time_of` does of many."""
    parts = shares(PARTITIONS, workers) if workers else ()
    return sum(parts.count(part) * part * curve.at(per_s * part / curve.per_s) for part in set(parts))


def in_time_of(curve: Curve, per_s: Floats, workers: Ints) -> Floats:
    """Return the share in time at each tick: of all workers, each with the load of its partitions."""
    found = np.zeros_like(per_s)
    for size in np.unique(workers[workers > 0]).tolist():
        of = workers == size
        for share in shares(PARTITIONS, size):
            load = per_s[of] * share / curve.per_s
            most = curve.loads[-1]
            each = curve.many(load, curve.in_time, idle=1.0) * np.minimum(1.0, most / np.maximum(load, most))
            found[of] += share * each
    return found
