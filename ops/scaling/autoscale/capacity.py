"""Find what one worker carries, in the machine time that workers report: by simulating it with the scheduler and the
admission that serve."""

from collections.abc import Callable
from statistics import fmean
from typing import Final

import msgspec
import numpy as np
from msgspec import Struct

from ops.scaling.plan.worker_rate import largest_rate, mix_of
from ops.simulate.experiment import Experiment
from ops.simulate.rivals import OURS
from ops.traces.costs import CPU, EngineCosts
from ops.traces.drawn import make_trace
from shared.settings import Settings

_KIND: Final = "poisson"
_REQUESTS: Final = 600  # of a simulation
_SPAN_S: Final = (10.0, 3_600.0)
_HALF: Final = 0.5
_TINY: Final = 1e-9


class Capacity(Struct, frozen=True, kw_only=True):
    """The most work that a worker may be asked (machine seconds a second, as it reports them) for the goal, and the
    share that it answers in time by its work. Beyond the most that was tried it answers no more than then."""

    carries: float
    loads: tuple[float, ...]
    shares: tuple[float, ...]

    @classmethod
    def given(cls, carries: float) -> "Capacity":
        """Return what an operator says: all is in time up to that, nothing beyond."""
        return cls(carries=carries, loads=(carries, carries + _TINY), shares=(1.0, 0.0))

    def in_time(self, load: float) -> float:
        if load > self.loads[-1]:
            return self.shares[-1] * self.loads[-1] / load
        return float(np.interp(load, self.loads, self.shares, left=1.0))


def simulate(
    costs: EngineCosts, settings: Settings, *, slots: int, goal: float, tell: Callable[[int], None] = lambda _: None
) -> Capacity:
    """Return what a worker of such costs carries. Raises `SettingsError` where it keeps the goal at no load."""
    experiment = Experiment(
        traces=(_KIND,),
        loads=(1.0,),
        slots=slots,
        seconds=1.0,
        costs=costs,
        settings=settings,
    )
    mix = mix_of(_KIND, experiment)
    seconds = min(max(_REQUESTS / mix.capacity_per_s, _SPAN_S[0]), _SPAN_S[1])
    experiment = msgspec.structs.replace(experiment, seconds=seconds)
    best, points = largest_rate(_KIND, mix, experiment, goal, tell)
    service_s = _service_ms(experiment) / 1_000
    return Capacity(
        carries=best.per_s * service_s,
        loads=tuple(point.per_s * service_s for point in points),
        shares=tuple(np.minimum.accumulate([point.attainment for point in points]).tolist()),
    )


def costs_of(service_ms: float, settings: Settings, *, slots: int) -> EngineCosts:
    """Return the measured CPU's costs, made as fast as workers that report so much machine time a request."""
    experiment = Experiment(
        traces=(_KIND,),
        loads=(_HALF,),
        slots=slots,
        seconds=_SPAN_S[0],
        costs=CPU,
        settings=settings,
    )
    return CPU.times(service_ms / _service_ms(experiment))


def _service_ms(experiment: Experiment) -> float:
    """Return the machine time of a request as the simulated worker would report it, at half of its capacity."""
    least = experiment.least
    trace = make_trace(_KIND, load=_HALF, seconds=experiment.seconds, seed=experiment.seed, least=least)
    simulator = experiment.simulator(trace, OURS)
    simulator.run()
    outlook = simulator.scheduler.outlook(trace.requests[-1].arrival_ms)
    assert outlook is not None
    return fmean(outlook.service_ms[request.bucket] for request in trace.requests)
