"""The share that a worker answers in time at each load: measured by the exact simulator, once for a machine's costs.

The measured fleet has four workers that share conversations by their partitions, like any fleet.
"""

import math
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from msgspec import Struct

from ops.lab.fleet.load import Floats, Load
from ops.lab.fleet.pool import Pool
from ops.lab.fleet.rivals import Static
from ops.lab.fleet.simulator import FleetSimulator
from ops.lab.fleet.watch import Watch
from ops.traces.drawn import capacity_per_s
from ops.traces.mixes import shop
from ops.virtual_worker.experiment import Experiment
from shared.errors import SettingsError

LOADS: Final = (0.2, 0.4, 0.55, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0, 3.0)
_WORKERS: Final = 4
_SPAN_S: Final = 240.0
_TICK_S: Final = 5.0
_REVISION: Final = 2  # of how it is measured


class Curve(Struct, frozen=True, kw_only=True):
    """A curve by load, in machine seconds that a worker is asked a second: the share that the model answers in time,
    the share of its time that it computes, how many requests run and wait at it, and how far (`spread`, a standard
    deviation) their sum is from its mean at a moment. `per_s` requests a second are a load of 1."""

    per_s: float
    loads: tuple[float, ...]
    in_time: tuple[float, ...]
    busy: tuple[float, ...]
    running: tuple[float, ...]
    waiting: tuple[float, ...]
    spread: tuple[float, ...]

    def at(self, load: float) -> float:
        """Return the share in time at a load. Beyond the last measured load it is the last share."""
        if load > self.loads[-1]:
            return self.in_time[-1] * self.loads[-1] / load
        return float(np.interp(load, (0.0, *self.loads), (1.0, *self.in_time)))

    def many(self, load: Floats, values: tuple[float, ...], *, idle: float = 0.0) -> Floats:
        """Return one of the measured values at many loads."""
        found: Floats = np.interp(load, (0.0, *self.loads), (idle, *values))
        return found

    def carries(self, goal: float) -> float:
        """Return the largest load at which `goal` is kept. Raises `SettingsError` if no load keeps it."""
        if self.in_time[0] < goal:
            raise SettingsError(
                f"--goal {goal:g}: even a worker with little to do answers {self.in_time[0]:.3f} in time"
            )
        last = next((at for at, share in enumerate(self.in_time) if share < goal), len(self.loads)) - 1
        if last == len(self.loads) - 1:
            return self.loads[-1]
        above, below = self.in_time[last], self.in_time[last + 1]
        return self.loads[last] + (self.loads[last + 1] - self.loads[last]) * (above - goal) / (above - below)


def curve_of(experiment: Experiment, folder: Path, tell: Callable[[int], None]) -> Curve:
    """Return the curve, from `folder` if it is stored there, or measured now. `tell` is called with the number of loads
    done."""
    of = (_REVISION, LOADS, experiment.costs, experiment.slots, experiment.seed, experiment.settings.worker)
    path = folder / f"load-{sha256(repr(of).encode()).hexdigest()[:16]}.json"
    if path.is_file():
        tell(len(LOADS))
        return msgspec.json.decode(path.read_bytes(), type=Curve)
    curve = _measure(experiment, tell)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(curve))
    return curve


def _measure(experiment: Experiment, tell: Callable[[int], None]) -> Curve:
    per_s = capacity_per_s(shop(experiment.costs.promise), experiment.least)
    rows: list[tuple[float, ...]] = []
    for load in LOADS:
        ticks = np.full(round(_SPAN_S / _TICK_S), load * per_s * _WORKERS)
        simulator = FleetSimulator(
            load=Load(name=f"steady {load}", tick_ms=_TICK_S * 1_000, per_s=ticks),
            scaler=Static(workers=_WORKERS),
            pool=Pool.warm(_WORKERS, 0.0),
            watch=Watch(work_s=1 / per_s),
            experiment=experiment,
        )
        played = simulator.run()
        busy_ms, running, waiting = np.array(simulator.seen).T
        busy = min(1.0, busy_ms.sum() / (_WORKERS * played.span_ms))
        spread = (running + waiting).std() / math.sqrt(_WORKERS)
        means = (running.mean() / _WORKERS, waiting.mean() / _WORKERS)
        rows.append((played.attainment, *(float(value) for value in (busy, *means, spread))))
        tell(len(rows))
    in_time, *others = zip(*rows, strict=True)
    falling = tuple(np.minimum.accumulate(in_time).tolist())  # what rises with the load is the draw's
    names = ("busy", "running", "waiting", "spread")
    return Curve(per_s=per_s, loads=LOADS, in_time=falling, **dict(zip(names, others, strict=True)))
