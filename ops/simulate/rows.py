"""What a run comes to: a row for each trace, load and policy, with the keys that `--json` writes. Pure."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from ops.measure.quantiles import percentile
from ops.simulate.bound import Bound
from ops.simulate.simulator import Ending, Outcome, Run
from ops.traces.least_work import LeastWork
from ops.traces.trace import Trace

_SECOND_MS = 1_000.0
_NORMAL = 0.9


class ClassRow(Struct, frozen=True, kw_only=True):
    """Of one bucket. `work_share`: its part of the machine time of all answers in time (by least work, as the bound
    counts it). `floor_ratio`: that work against the class's floor, half its share of capacity; from 1 on it is kept.
    """

    requests: int
    model_in_deadline: int
    work_share: float
    floor_ratio: float | None


class Row(Struct, frozen=True, kw_only=True):
    """TTFT is of every answer that the model began, late ones too.

    `wasted_steps` is the share of rows in steps that were spent on answers not in time; `busy` the engine's share of
    the time. `released_late_ms`: how long after its due time the worker let go of the latest (policies that honour
    deadlines; the gateway's timer has answered by then). `fallback_*`: from arrival to fallback. `recovery_s`: from a
    surge's end to when 90 % of a second's arrivals are answered in time again. `busy_ms_per_answer`: the engine's time
    for each answer in time. `times_real_time` alone depends on the machine that simulates.
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
    wasted_steps: float | None = None
    busy: float | None = None
    steps: int | None = None
    mean_batch_rows: float | None = None
    rows_histogram: dict[int, int] = {}
    released_late_ms: float | None = None
    fallback_p50_ms: float | None = None
    fallback_p99_ms: float | None = None
    recovery_s: float | None = None
    output_tok_s: float | None = None
    busy_ms_per_answer: float | None = None
    times_real_time: float | None = None


class Subject(Struct, frozen=True, kw_only=True):
    """What a row is about."""

    trace: Trace
    policy: str
    lengths: str
    least: LeastWork
    bound: Bound | None


def row_of(subject: Subject, run: Run, *, honours_deadlines: bool, real_s: float | None = None) -> Row:
    """`real_s`: how long the simulation took."""
    trace, bound = subject.trace, subject.bound
    counts = Counter(ending.outcome for ending in run.endings)
    good = counts[Outcome.IN_DEADLINE]
    ttfts = sorted(
        ending.first_token_ms - ending.request.arrival_ms for ending in run.endings if ending.first_token_ms is not None
    )
    fallbacks = sorted(
        ending.released_ms - ending.request.arrival_ms for ending in run.endings if ending.outcome is Outcome.FALLBACK
    )
    span_ms = max([1.0, trace.span_ms, *(ending.released_ms for ending in run.endings)])
    return Row(
        trace=trace.name,
        load=trace.load,
        policy=subject.policy,
        seed=trace.seed,
        requests=len(trace.requests),
        model_in_deadline=good,
        model_late=counts[Outcome.LATE],
        fallback=counts[Outcome.FALLBACK],
        refused=counts[Outcome.REFUSED],
        ttft_p50_ms=_percentile(ttfts, 0.50),
        ttft_p99_ms=_percentile(ttfts, 0.99),
        lengths=subject.lengths,
        costs=subject.least.costs.name,
        slots=subject.least.num_slots,
        goodput_per_s=_per_s(good, trace.span_ms),
        of_bound=round(good / bound.answers, 4) if bound is not None and bound.answers else None,
        by_class=_by_class(run.endings, subject.least, bound),
        wasted_steps=_wasted(run.endings),
        busy=round(run.busy_ms / span_ms, 4),
        steps=run.num_steps,
        mean_batch_rows=_mean_rows(run.rows_histogram),
        rows_histogram=run.rows_histogram,
        released_late_ms=_released_late_ms(run.endings) if honours_deadlines else None,
        fallback_p50_ms=_percentile(fallbacks, 0.50),
        fallback_p99_ms=_percentile(fallbacks, 0.99),
        recovery_s=_recovery_s(trace, run.endings),
        output_tok_s=_output_per_s(run.endings, span_ms),
        busy_ms_per_answer=round(run.busy_ms / good, 3) if good else None,
        times_real_time=round(span_ms / 1_000 / real_s, 1) if real_s else None,
    )


def bound_row(subject: Subject) -> Row:
    """The bound's own row: what it does not answer in time gets its fallback."""
    trace, bound = subject.trace, subject.bound
    assert bound is not None
    return Row(
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


def _by_class(endings: Iterable[Ending], least: LeastWork, bound: Bound | None) -> dict[str, ClassRow]:
    offered: Counter[str] = Counter()
    good: Counter[str] = Counter()
    work: Counter[str] = Counter()
    for ending in endings:
        bucket = ending.request.bucket
        offered[bucket] += 1
        if ending.outcome is Outcome.IN_DEADLINE:
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
        rows[ending.outcome is Outcome.IN_DEADLINE] += ending.num_rows
    return round(rows[False] / rows.total(), 5) if rows.total() else 0.0


def _released_late_ms(endings: Iterable[Ending]) -> float:
    return round(max([0.0, *(_late_ms(ending) for ending in endings)]), 3)


def _late_ms(ending: Ending) -> float:
    """After the first token's deadline where there was none, else after the answer's."""
    request = ending.request
    due_ms = request.first_token_ms if ending.first_token_ms is None else request.deadline_ms
    return ending.released_ms - request.arrival_ms - due_ms


def _recovery_s(trace: Trace, endings: Sequence[Ending]) -> float | None:
    """The longest of the surges'; None where none ended before the trace did, or it never came back."""
    arrived: Counter[int] = Counter()
    good: Counter[int] = Counter()
    for ending in endings:
        second = int(ending.request.arrival_ms // _SECOND_MS)
        arrived[second] += 1
        good[second] += ending.outcome is Outcome.IN_DEADLINE
    taken: list[int] = []
    for _, end_ms in trace.surges:
        after = [second for second in sorted(arrived) if second >= math.ceil(end_ms / _SECOND_MS)]
        normal = next((second for second in after if good[second] >= _NORMAL * arrived[second]), None)
        if normal is None:
            return None
        taken.append(normal - math.ceil(end_ms / _SECOND_MS))
    return float(max(taken)) if taken else None


def _mean_rows(histogram: Mapping[int, int]) -> float:
    steps = sum(histogram.values())
    return round(sum(rows * times for rows, times in histogram.items()) / steps, 2) if steps else 0.0


def _output_per_s(endings: Iterable[Ending], span_ms: float) -> float:
    """Tokens of answers in time."""
    tokens = sum(ending.request.output_tokens for ending in endings if ending.outcome is Outcome.IN_DEADLINE)
    return _per_s(tokens, span_ms)


def _percentile(ordered: Sequence[float], share: float) -> float | None:
    return round(percentile(ordered, share), 3) if ordered else None


def _per_s(count: float, span_ms: float) -> float:
    return round(count * 1_000 / span_ms, 3) if span_ms > 0 else 0.0
