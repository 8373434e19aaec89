"""Find the rate that one worker can serve by simulating it, with the product's scheduler and gateway admission.
Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from statistics import fmean, pstdev
from typing import Final

from msgspec import Struct

from ops.measure.quantiles import percentile
from ops.traces.drawn import KINDS, capacity_per_s
from ops.virtual_worker.experiment import Experiment
from ops.virtual_worker.simulator import SimulatedOutcome
from shared.errors import SettingsError

_SAMPLE: Final = 2_000
_LIGHTEST: Final = 0.05
_HEAVIEST: Final = 1.0  # beyond it a backlog grows, however long it takes to be seen
_STEPS: Final = 6


class Point(Struct, frozen=True, kw_only=True):
    """One worker at `per_s` requests a second: the share whose whole answer the model gave within both deadlines."""

    per_s: float
    attainment: float
    ttft_p99_ms: float | None
    busy: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """The average request. `service_s`: from its first step to its end where the slots are full, and
    `variation` of it as a share; `alone_s`: on a worker that has nothing else to do."""

    kind: str
    prompt_tokens: float
    output_tokens: float
    service_s: float
    variation: float
    alone_s: float
    capacity_per_s: float


def mix_of(kind: str, experiment: Experiment) -> Mix:
    least = experiment.least
    draw = KINDS[kind].mix(experiment.costs.promise)
    random = Random("plan")  # noqa: S311 - a sample, the same for every plan
    sample = [draw(random, 0.0) for _ in range(_SAMPLE)]
    # With all slots full each gets its part of the machine.
    services = [experiment.slots * least.ms(request) / 1_000 for request in sample]
    return Mix(
        kind=kind,
        prompt_tokens=fmean(request.prompt_tokens for request in sample),
        output_tokens=fmean(request.num_decodes + 1 for request in sample),
        service_s=fmean(services),
        variation=pstdev(services) / fmean(services),
        alone_s=fmean(least.alone_ms(request) for request in sample) / 1_000,
        capacity_per_s=capacity_per_s(draw, least),
    )


def point_at(kind: str, load: float, experiment: Experiment, capacity: float) -> Point:
    trace = experiment.trace(kind, load)
    run = experiment.simulator(trace).run()
    ttfts = run.ttfts_ms()
    in_time = sum(ending.outcome is SimulatedOutcome.IN_DEADLINE for ending in run.endings)
    return Point(
        per_s=load * capacity,
        attainment=in_time / len(trace.requests) if trace.requests else 1.0,
        ttft_p99_ms=round(percentile(ttfts, 0.99), 3) if ttfts else None,
        busy=run.busy(trace),
    )


def largest_rate(
    kind: str, mix: Mix, experiment: Experiment, goal: float, tell: Callable[[int], None]
) -> tuple[Point, list[Point]]:
    """Return the largest rate at which `goal` of all requests are answered in time, within 2 % of capacity, and every
    point that was tried.

    Args:
        kind: the kind of traffic.
        mix: the average request.
        experiment: the simulation's costs and settings.
        goal: the share to answer in time.
        tell: called with the number of points done.

    Raises:
        SettingsError: no rate is small enough.
    """
    seen: list[Point] = []

    def look(load: float) -> Point:
        seen.append(point_at(kind, load, experiment, mix.capacity_per_s))
        tell(len(seen))
        return seen[-1]

    best = look(_LIGHTEST)
    if best.attainment < goal:
        promise = experiment.costs.promise
        raise SettingsError(
            f"--attainment {goal:g}: even at a twentieth of a worker's capacity only {best.attainment:.3f} come within "
            f"{promise.first_token_ms} ms to the first token and {promise.deadline_ms} ms in all; alone an answer "
            f"takes {1_000 * mix.alone_s:,.0f} ms: a faster engine, shorter answers, or later deadlines (--profile)"
        )
    low, high = _LIGHTEST, _HEAVIEST
    for _ in range(_STEPS):
        middle = (low + high) / 2
        point = look(middle)
        if point.attainment >= goal:
            low, best = middle, point
        else:
            high = middle
    return best, sorted(seen, key=lambda point: point.per_s)
