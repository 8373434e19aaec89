"""An upper bound on answers in time, by one who knows the future: docs/simulation.md has the argument. Pure.

A request takes at least `w` of machine time between its release and its deadline. So in every interval the `w` of the
answers whose windows lie in it is at most its length: constraints of a polymatroid over the amounts of work, in which
taking requests greedily by value for work is the optimum of the relaxed problem. Class floors enter by Lagrange
multipliers: each choice of them gives a bound, the least one counts.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ops.lab.simulate.machine import Floats, Ints, Windows, fill
from ops.traces.least_work import LeastWork
from ops.traces.trace import Request, Trace

_FLOOR_SHARE: Final = 0.5
_ROUNDS: Final = 2
_HALVINGS: Final = 6
_ROUNDING: Final = 1e-6
_THRESHOLDS: Final = (0.25, 0.5, 0.75, 0.9)  # of decode work, as quantiles


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleBound:
    """No schedule that keeps the floors gives more than `answers` in time, none at all more than `without_floors`.

    `usable_ms`: the most machine time that can go into answers in time. `floor_ms`: of it, by bucket, what each class
    gets at least: half its share by offered work, but no more than it could use alone.
    """

    answers: int
    without_floors: int
    usable_ms: float
    floor_ms: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxation:
    """Constraints that every schedule meets: of each job `charged_ms` lies in its window."""

    windows: Windows
    charged_ms: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """The requests that can be met at all, as arrays. `bucket` indexes `buckets`."""

    buckets: tuple[str, ...]
    bucket: Ints
    work_ms: Floats
    relaxations: tuple[Relaxation, ...]


def upper_bound(trace: Trace, least: LeastWork) -> ScheduleBound:
    """Return the bound for a trace on one engine."""
    jobs = _jobs(trace.requests, least)
    if not jobs.work_ms.size:
        return ScheduleBound(answers=0, without_floors=0, usable_ms=0.0, floor_ms={})
    free, tightest = min(
        ((_optimum(relaxation, np.ones_like(jobs.work_ms))[0], relaxation) for relaxation in jobs.relaxations),
        key=lambda found: found[0],
    )
    offered = np.bincount(jobs.bucket, jobs.work_ms, len(jobs.buckets))
    usable_ms = _most_work(jobs, tightest, jobs.work_ms)
    by_bucket = [np.where(jobs.bucket == bucket, jobs.work_ms, 0.0) for bucket in range(offered.size)]
    alone = [_most_work(jobs, tightest, work_ms) for work_ms in by_bucket]
    floors = np.minimum(_FLOOR_SHARE * usable_ms * offered / offered.sum(), alone)
    floored = _least_over_multipliers(jobs, tightest, floors)
    return ScheduleBound(
        answers=math.floor(min(free, floored) + _ROUNDING),
        without_floors=math.floor(free + _ROUNDING),
        usable_ms=usable_ms,
        floor_ms=dict(zip(jobs.buckets, floors.tolist(), strict=True)),
    )


def _jobs(requests: Iterable[Request], least: LeastWork) -> Jobs:
    met = [request for request in requests if least.alone_ms(request) <= request.deadline_ms]
    buckets = tuple(sorted({request.bucket for request in met}))
    return Jobs(
        buckets=buckets,
        bucket=np.array([buckets.index(request.bucket) for request in met], dtype=np.int64),
        work_ms=np.array([least.ms(request) for request in met]),
        relaxations=tuple(_relaxations(met, least)),
    )


def _relaxations(requests: Sequence[Request], least: LeastWork) -> Iterator[Relaxation]:
    """Windows up to the hard deadline; and up to the first token's if that is earlier.

    By its first token's deadline an answer has begun, and until it is finished it holds a slot. So of all that began in
    an interval at most `num_slots` answers have decode work left at its end: a threshold for each, and what they have
    above that, which is not charged.
    """
    if not requests:
        return
    release = np.array([request.arrival_ms for request in requests])
    hard = release + np.array([request.deadline_ms for request in requests])
    soft = np.minimum(hard, release + np.array([request.first_token_ms for request in requests]))
    prefill = np.array([least.prefill_ms(request) for request in requests])
    decode = np.array([least.decode_ms(request) for request in requests])
    yield Relaxation(windows=Windows.of(release, hard), charged_ms=prefill + decode)
    if (soft < hard).any():
        for threshold in np.quantile(decode, _THRESHOLDS).tolist():
            windows = Windows.of(release, soft, extra_ms=least.num_slots * threshold)
            yield Relaxation(windows=windows, charged_ms=prefill + np.minimum(decode, threshold))


def _optimum(relaxation: Relaxation, value: Floats) -> tuple[float, Floats]:
    """Return the most value of fractions of jobs, and these fractions: greedily by value for what is charged."""
    order = np.argsort(-value / relaxation.charged_ms, kind="stable")
    taken = fill(relaxation.windows, relaxation.charged_ms, order[value[order] > 0])
    fractions: Floats = taken / relaxation.charged_ms
    return float((value * fractions).sum()), fractions


def _most_work(jobs: Jobs, tightest: Relaxation, work_ms: Floats) -> float:
    """Return the most machine time that answers in time can take."""
    return min(_optimum(relaxation, work_ms)[0] for relaxation in (jobs.relaxations[0], tightest))


def _priced(jobs: Jobs, relaxation: Relaxation, prices: Floats, floors: Floats) -> tuple[float, Floats]:
    """Return the optimum with the floors at `prices` (answers a ms), and the work that each class gets in it."""
    value, fractions = _optimum(relaxation, 1.0 + prices[jobs.bucket] * jobs.work_ms)
    by_bucket: Floats = np.bincount(jobs.bucket, fractions * jobs.work_ms, floors.size).astype(np.float64)
    return value - float((prices * floors).sum()), by_bucket


def _least_over_multipliers(jobs: Jobs, relaxation: Relaxation, floors: Floats) -> float:
    """Weak duality: any prices at or above zero give a bound. Coordinate by coordinate, halving.

    While a class is short of its floor its price must rise, else fall: the bound is convex in the prices.
    """
    prices = np.zeros_like(floors)
    best, by_bucket = _priced(jobs, relaxation, prices, floors)
    most = float((1.0 / jobs.work_ms).max())
    for _ in range(_ROUNDS):
        if (by_bucket >= floors - _ROUNDING).all():
            break
        for bucket in range(floors.size):
            if prices[bucket] == 0.0 and by_bucket[bucket] >= floors[bucket] - _ROUNDING:
                continue
            low, high = 0.0, most
            for _ in range(_HALVINGS):
                prices[bucket] = (low + high) / 2
                value, by_bucket = _priced(jobs, relaxation, prices, floors)
                best = min(best, value)
                if by_bucket[bucket] < floors[bucket]:
                    low = float(prices[bucket])
                else:
                    high = float(prices[bucket])
            prices[bucket] = high
    return best
