"""The result of a run: a row for each trace, load and policy, with the keys that `--json` writes. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from ops.lab.simulate.bound import ScheduleBound
from ops.measure.quantiles import percentile
from ops.traces.least_work import LeastWork
from ops.traces.trace import Trace
from ops.virtual_worker.simulator import Ending, Run, SimulatedOutcome


class ClassRow(Struct, frozen=True, kw_only=True):
    """The figures of one bucket. `work_share`: its part of the machine time of all answers in time (by least work, as
    the bound counts it). `floor_ratio`: that work against the class's floor, half its share of capacity; from 1 on it
    is kept.
    """

    requests: int
    model_in_deadline: int
    work_share: float
    floor_ratio: float | None


class SimulationRow(Struct, frozen=True, kw_only=True):
    """TTFT is of every answer that the model began, late ones too.

    `wasted_steps` is the share of rows in steps that were spent on answers not in time; `busy` the engine's share of
    the time. `by_lane` are the ladder's answers in time. `times_real_time` alone depends on the machine that simulates.
    """

    trace: str
    load: float | None
    policy: str
    seed: int
    requests: int
    model_in_deadline: int
    model_late: int
    fallback: int
    refused: int
    ttft_p50_ms: float | None
    ttft_p99_ms: float | None
    lengths: str
    costs: str
    slots: int
    goodput_per_s: float
    of_bound: float | None = None
    without_floors: int | None = None
    by_class: dict[str, ClassRow] = {}
    by_lane: dict[str, int] = {}
    wasted_steps: float | None = None
    busy: float | None = None
    mean_batch_rows: float | None = None
    times_real_time: float | None = None


class Subject(Struct, frozen=True, kw_only=True):
    """The subject of a row."""

    trace: Trace
    policy: str
    lengths: str
    least: LeastWork
    bound: ScheduleBound | None


def row_of(subject: Subject, run: Run, *, real_s: float | None = None) -> SimulationRow:
    """`real_s`: how long the simulation took."""
    trace, bound = subject.trace, subject.bound
    counts = Counter(ending.outcome for ending in run.endings)
    good = counts[SimulatedOutcome.IN_DEADLINE]
    ttfts = run.ttfts_ms()
    return SimulationRow(
        trace=trace.name,
        load=trace.load,
        policy=subject.policy,
        seed=trace.seed,
        requests=len(trace.requests),
        model_in_deadline=good,
        model_late=counts[SimulatedOutcome.LATE],
        fallback=counts[SimulatedOutcome.FALLBACK],
        refused=counts[SimulatedOutcome.REFUSED],
        ttft_p50_ms=_percentile(ttfts, 0.50),
        ttft_p99_ms=_percentile(ttfts, 0.99),
        lengths=subject.lengths,
        costs=subject.least.costs.name,
        slots=subject.least.num_slots,
        goodput_per_s=_per_s(good, trace.span_ms),
        of_bound=round(good / bound.answers, 4) if bound is not None and bound.answers else None,
        by_class=_by_class(run.endings, subject.least, bound),
        wasted_steps=_wasted(run.endings),
        busy=run.busy(trace),
        mean_batch_rows=_mean_rows(run.rows_histogram),
        times_real_time=round(run.span_ms(trace) / 1_000 / real_s, 1) if real_s else None,
    )


def bound_row(subject: Subject) -> SimulationRow:
    """Return the bound's own row: what it does not answer in time gets its fallback."""
    trace, bound = subject.trace, subject.bound
    assert bound is not None
    return SimulationRow(
        trace=trace.name,
        load=trace.load,
        policy="bound",
        seed=trace.seed,
        requests=len(trace.requests),
        model_in_deadline=bound.answers,
        model_late=0,
        fallback=len(trace.requests) - bound.answers,
        refused=0,
        ttft_p50_ms=None,
        ttft_p99_ms=None,
        lengths="known",
        costs=subject.least.costs.name,
        slots=subject.least.num_slots,
        goodput_per_s=_per_s(bound.answers, trace.span_ms),
        of_bound=1.0,
        without_floors=bound.without_floors,
    )


def _by_class(endings: Iterable[Ending], least: LeastWork, bound: ScheduleBound | None) -> dict[str, ClassRow]:
    offered: Counter[str] = Counter()
    good: Counter[str] = Counter()
    work: Counter[str] = Counter()
    for ending in endings:
        bucket = ending.request.bucket
        offered[bucket] += 1
        if ending.outcome is SimulatedOutcome.IN_DEADLINE:
            good[bucket] += 1
            work[bucket] += least.ms(ending.request)  # type: ignore[assignment]  # a Counter adds floats as well
    total = work.total() or 1.0
    floors: Mapping[str, float] = bound.floor_ms if bound is not None else {}
    return {
        bucket: ClassRow(
            requests=offered[bucket],
            model_in_deadline=good[bucket],
            work_share=round(work[bucket] / total, 4),
            floor_ratio=round(work[bucket] / floors[bucket], 3) if floors.get(bucket) else None,
        )
        for bucket in sorted(offered)
    }


def _wasted(endings: Iterable[Ending]) -> float:
    rows = Counter[bool]()
    for ending in endings:
        rows[ending.outcome is SimulatedOutcome.IN_DEADLINE] += ending.num_rows
    return round(rows[False] / rows.total(), 5) if rows.total() else 0.0


def _mean_rows(histogram: Mapping[int, int]) -> float:
    steps = sum(histogram.values())
    return round(sum(rows * times for rows, times in histogram.items()) / steps, 2) if steps else 0.0


def _percentile(ordered: Sequence[float], share: float) -> float | None:
    return round(percentile(ordered, share), 3) if ordered else None


def _per_s(count: float, span_ms: float) -> float:
    return round(count * 1_000 / span_ms, 3) if span_ms > 0 else 0.0
