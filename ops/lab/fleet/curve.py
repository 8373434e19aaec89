"""The share that a worker answers in time at each load: simulated request by request, once for a machine's costs."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from msgspec import Struct

from ops.lab.fleet.load import Floats
from ops.traces.drawn import capacity_per_s
from ops.traces.mixes import shop
from ops.virtual_worker.experiment import Experiment
from ops.virtual_worker.simulator import Run, SimulatedOutcome
from shared.errors import SettingsError

LOADS: Final = (0.2, 0.4, 0.55, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0, 3.0)
_KIND: Final = "poisson"
_SPAN_S: Final = 480.0
_LOOK_MS: Final = 500.0
_REVISION: Final = 3  # of how it is measured


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


def curve_of(experiment: Experiment, folder: Path, progress: Callable[[int], None]) -> Curve:
    """Return the curve, from `folder` if it is stored there, or measured now. `progress` gets the number of loads
    done."""
    of = (_REVISION, LOADS, experiment.costs, experiment.slots, experiment.seed, experiment.settings.worker)
    path = folder / f"load-{sha256(repr(of).encode()).hexdigest()[:16]}.json"
    if path.is_file():
        progress(len(LOADS))
        return msgspec.json.decode(path.read_bytes(), type=Curve)
    curve = _measure(experiment, progress)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(curve))
    return curve


def _measure(experiment: Experiment, progress: Callable[[int], None]) -> Curve:
    timed = msgspec.structs.replace(experiment, seconds=_SPAN_S)
    rows: list[tuple[float, ...]] = []
    for load in LOADS:
        run = timed.simulator(timed.trace(_KIND, load)).run()
        in_time = sum(ending.outcome is SimulatedOutcome.IN_DEADLINE for ending in run.endings) / len(run.endings)
        in_flight = _in_flight(run)
        running = np.minimum(in_flight, experiment.slots)
        busy = min(1.0, run.busy_ms / (_SPAN_S * 1_000))
        rows.append((in_time, busy, float(running.mean()), float((in_flight - running).mean()), float(in_flight.std())))
        progress(len(rows))
    shares, *others = zip(*rows, strict=True)
    falling = tuple(np.minimum.accumulate(shares).tolist())  # what rises with the load is the draw's
    names = ("busy", "running", "waiting", "spread")
    per_s = capacity_per_s(shop(experiment.costs.promise), experiment.least)
    return Curve(per_s=per_s, loads=LOADS, in_time=falling, **dict(zip(names, others, strict=True)))


def _in_flight(run: Run) -> Floats:
    """Return the number of requests that the worker has, at each look."""
    looks = np.arange(0.0, _SPAN_S * 1_000, _LOOK_MS)
    arrived = np.sort([ending.request.arrival_ms for ending in run.endings])
    released = np.sort([ending.released_ms for ending in run.endings])
    found: Floats = (np.searchsorted(arrived, looks, "right") - np.searchsorted(released, looks, "right")).astype(float)
    return found
