"""Find what one worker carries, in the machine time that workers report: by simulating it with the scheduler and the
admission that serve."""

from collections.abc import Callable
from statistics import fmean
from typing import Final

import msgspec
import numpy as np
from msgspec import Struct

from ops.scaling.autoscale.basis import Basis
from ops.scaling.plan.worker_rate import largest_rate, mix_of
from ops.traces.costs import CPU, EngineCosts
from ops.traces.mixes import SHOP, Promise
from ops.virtual_worker.experiment import Experiment
from shared.settings import Settings
from shared.settings.promise import PromiseSettings
from shared.wire.step_law import StepLaw
from workers.schedule.costs import CostTable

_KIND: Final = "poisson"
_REQUESTS: Final = 600  # of a simulation
_MOST_REQUESTS: Final = 2_000  # of one of a very fast worker
_LEAST_SPAN_S: Final = 10.0
_HALF: Final = 0.5
_TIMES: Final = (0.1, 10.0)  # prompts and answers are simulated at most this many times shorter or longer than a shop's


class Capacity(Struct, frozen=True, kw_only=True):
    """The most work that a worker may be asked (machine seconds a second, as it reports them) for the goal, and the
    share that it answers in time by its work. Beyond the most that was tried it answers no more than then."""

    carries: float
    loads: tuple[float, ...]
    shares: tuple[float, ...]

    @classmethod
    def given(cls, carries: float, goal: float) -> "Capacity":
        """Return what an operator says: the goal is kept up to that load."""
        return cls(carries=carries, loads=(_HALF * carries, carries, carries / _HALF), shares=(1.0, goal, _HALF))

    def in_time(self, load: float) -> float:
        if load > self.loads[-1]:
            return self.shares[-1] * self.loads[-1] / load
        return float(np.interp(load, self.loads, self.shares, left=1.0))


def simulate(
    costs: EngineCosts, settings: Settings, *, slots: int, goal: float, tell: Callable[[int], None] = lambda _: None
) -> Capacity:
    """Return what a worker of such costs carries. Raises `SettingsError` if it keeps the goal at no load."""
    experiment = Experiment(
        slots=slots,
        seconds=1.0,
        costs=costs,
        settings=settings,
    )
    mix = mix_of(_KIND, experiment)
    seconds = max(_REQUESTS / mix.capacity_per_s, min(_LEAST_SPAN_S, _MOST_REQUESTS / mix.capacity_per_s))
    experiment = msgspec.structs.replace(experiment, seconds=seconds)
    best, points = largest_rate(_KIND, mix, experiment, goal, tell)
    service_s = _service_ms(experiment) / 1_000
    return Capacity(
        carries=best.per_s * service_s,
        loads=tuple(point.per_s * service_s for point in points),
        shares=tuple(np.minimum.accumulate([point.attainment for point in points]).tolist()),
    )


def costs_of(law: StepLaw) -> EngineCosts:
    """Return the costs of an engine whose steps take what a worker reports."""
    laws = {name: getattr(law, name) for name in CostTable.__struct_fields__ if "_ms" in name}
    key = msgspec.structs.replace(CPU.table.key, mixes=law.mixes)
    return EngineCosts(
        name="reported",
        source="as the workers report",
        profile="cpu",
        table=msgspec.structs.replace(CPU.table, key=key, **laws),
    )


def promise_of(settings: PromiseSettings, basis: Basis) -> Promise:
    """Return what the operator promises, for what customers ask: a shop's mix with the parts of the buckets that were
    asked, and as much longer as the workers' mean prompt and answer are."""
    short, medium, long = (basis.parts.get(bucket, 0.0) for bucket, _, _ in SHOP)
    parts = (short, medium, long) if short + medium + long > 0.0 else (0.7, 0.2, 0.1)
    law = basis.law or StepLaw()
    prompt = sum(part * tokens for part, (_, tokens, _) in zip(parts, SHOP, strict=True))
    answer = sum(part * tokens for part, (_, _, tokens) in zip(parts, SHOP, strict=True))
    return Promise(
        first_token_ms=settings.first_token_ms,
        deadline_ms=settings.deadline_ms,
        parts=parts,
        prompts_times=_times(law.prompt_tokens, prompt),
        answers_times=_times(law.output_tokens, answer),
    )


def _times(seen: float, usual: float) -> float:
    """Return how much longer than usual; 1 if no value was seen."""
    return min(max(seen / usual, _TIMES[0]), _TIMES[1]) if seen > 0.0 and usual > 0.0 else 1.0


def _service_ms(experiment: Experiment) -> float:
    """Return the machine time of a request as the simulated worker would report it, at half of its capacity."""
    trace = experiment.trace(_KIND, _HALF)
    simulator = experiment.simulator(trace)
    simulator.run()
    outlook = simulator.scheduler.outlook(trace.requests[-1].arrival_ms)
    assert outlook is not None
    return fmean(outlook.service_ms[request.bucket] for request in trace.requests)
