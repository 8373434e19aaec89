"""The report of a load: the questions, the outcomes over time, and how the load was made. Pure."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, get_args

import numpy as np

from ops.lab.client.outcome import Outcome
from ops.lab.load.figures.groups import rows_of
from ops.lab.load.figures.report import LATENCIES, LoadParameters, LoadReport, latency_rows
from ops.measure.environment import Environment
from ops.measure.plot import Line, Plot, Points
from ops.measure.quantiles import Quantiles, percentile
from ops.measure.report import Part, report
from ops.measure.runner import Cell, show
from shared.wire.outcome import BY_MODEL, Source

Latency = Callable[[Outcome], float | None]

_TERMS: Final = (
    "TTFT is the time to the first text, end to end that to the answer's last word, TPOT the time for each token "
    "between them: of the model's answers, by the asking client's clock, from the moment that the request was due. "
    "Any answer is end to end of every answer, whoever gave it."
)
_IN_TIME, _MIXED, _LATE, _NONE = "model, in time", "mixed, in time", "model, late or cut", "no answer"
ENDS: Final[Mapping[str, str]] = {
    _IN_TIME: "the model's whole answer within its deadline",
    _MIXED: "the same, with an FAQ entry's text in some places",
    _LATE: "the model's answer, after its deadline or cut at it",
    "faq": "an FAQ entry instead of the model's text",
    "quote": "an FAQ entry quoted, which may not answer the question",
    "clarify": "it asks which of two FAQ entries is meant",
    "courtesy": "a greeting or thanks, returned",
    "unsure": "an answer that the FAQ does not cover this",
    "busy": "it asks to try again",
    "handoff": "a person takes over",
    _NONE: "refused by the gateway, or no answer at all",
}
_MOST_BINS: Final = 60
_MOST_DOTS: Final = 1_500
_CURVE_POINTS: Final = 200
_LEAST_MS: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFacts:
    """The facts of the report.

    Attributes:
        told: a sentence that describes the load
        grouped_by: the property that `groups` differ in
        groups: a report per group
        first_token_ms: the gateway's soft deadline; None if requests have their own
        deadline_ms: the gateway's hard deadline; None if requests have their own
        settings: settings of the system that affect the result
        surges: begin and end of each surge, in seconds from the start
    """

    title: str
    told: str
    outcomes: Sequence[Outcome]
    report: LoadReport
    run: LoadParameters
    environment: Environment
    grouped_by: str
    groups: Mapping[str, LoadReport]
    first_token_ms: float | None = None
    deadline_ms: float | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    surges: Sequence[tuple[float, float]] = ()


def load_page(facts: LoadFacts) -> str:
    """Return the HTML file."""
    titles, rows = rows_of(facts.grouped_by, facts.groups)
    parts = (
        _ends(facts.outcomes),
        Part(title="Over time", text="A surge is shaded." if facts.surges else "", plots=_over_time(facts)),
        Part(title="Distribution", text="The share of answers up to that time.", plots=_distribution(facts)),
        Part(title="Latencies", text=_TERMS, titles=LATENCIES, rows=latency_rows(facts.report)),
        Part(title=f"By {facts.grouped_by}", titles=titles, rows=rows),
        Part(title="How this was made", pairs=environment_pairs(facts.environment, _making(facts))),
    )
    return report(facts.title, facts.told, parts, headline=_headline(facts.report))


def end_of(outcome: Outcome) -> str:
    """Return one of `ENDS`."""
    if outcome.done_s is None or outcome.source is None:
        return _NONE
    if outcome.source not in BY_MODEL:
        return outcome.source
    if not outcome.good:
        return _LATE
    return _MIXED if outcome.source == "mixed" else _IN_TIME


def _ends(outcomes: Sequence[Outcome]) -> Part:
    found = Counter(map(end_of, outcomes))
    rows: list[list[Cell]] = [
        [end, found[end], f"{found[end] / len(outcomes):.1%}", told] for end, told in ENDS.items()
    ]
    return Part(title="Outcomes", titles=("", "requests", "share", ""), rows=rows)


def _headline(of: LoadReport) -> dict[str, str]:
    instead = sum(of.by_source[source] for source in get_args(Source) if source not in BY_MODEL)
    return {
        "answered by the model within the deadline": f"{of.goodput.share:.1%}",
        "such answers a second": show(of.goodput.per_s),
        "ms to the model's first text, p50 / p99": _two(of.ttft_ms),
        "answered without the model": f"{instead:,}",
        "refused, or without an answer": f"{of.errors.total:,}",
    }


def _two(of: Quantiles) -> str:
    return "–" if of.p50 is None or of.p99 is None else f"{of.p50:,.0f} / {of.p99:,.0f}"


def _over_time(facts: LoadFacts) -> list[Plot]:
    plots = [_rates(facts.outcomes, facts.surges)]
    for title, of, promise in (("TTFT", ttft, facts.first_token_ms), ("end to end", e2e, facts.deadline_ms)):
        points = _measured(facts.outcomes, of)
        if points:
            dots = Line("an answer", points[:: math.ceil(len(points) / _MOST_DOTS)], dots=True, colour=5)
            lines = (dots, Line("p99", _binned(points, 0.99), colour=1), Line("p50", _binned(points, 0.50)))
            plots.append(
                Plot(
                    title=f"{title} of the model's answers over time",
                    x="asked at, seconds from the start",
                    y="ms",
                    lines=lines,
                    log_y=True,
                    levels={} if promise is None else {f"promised: {promise:g} ms": promise},
                    spans=facts.surges,
                )
            )
    return plots


def _rates(outcomes: Sequence[Outcome], surges: Sequence[tuple[float, float]]) -> Plot:
    """Plot the requests offered and answered per second, by when each was due or ended."""
    start_s = _start_s(outcomes)
    ended = [(one.done_s - start_s, one.good) for one in outcomes if one.done_s is not None]
    due = [one.scheduled_s - start_s for one in outcomes]
    span_s = max(due + [at_s for at_s, _ in ended])
    width_s = _bin_s(span_s)
    edges = np.arange(math.ceil(span_s / width_s + 1e-9) + 1) * width_s

    def line(name: str, times_s: Sequence[float], colour: int) -> Line:
        counts, _ = np.histogram(times_s, edges)
        points = [(float(edge) + width_s / 2, int(count) / width_s) for edge, count in zip(edges, counts, strict=False)]
        return Line(name, points, colour=colour)

    return Plot(
        title="Requests offered and answered a second, over time",
        x="seconds from the start",
        y="a second",
        lines=(
            line("offered", due, 5),
            line("answered", [at_s for at_s, _ in ended], 2),
            line("by the model, in time", [at_s for at_s, good in ended if good], 0),
        ),
        spans=surges,
    )


def _bin_s(span_s: float) -> float:
    """Return the width of a time bin: at least a second, and at most sixty bins in the span."""
    return max(1.0, math.ceil(span_s / _MOST_BINS))


def _binned(points: Points, share: float) -> list[tuple[float, float]]:
    """Return a percentile of y for each time bin with points."""
    width_s = _bin_s(max(at_s for at_s, _ in points))
    within: dict[int, list[float]] = {}
    for at_s, value in points:
        within.setdefault(int(at_s / width_s), []).append(value)
    return [((place + 0.5) * width_s, percentile(sorted(values), share)) for place, values in sorted(within.items())]


def _distribution(facts: LoadFacts) -> list[Plot]:
    promised = {"first text": facts.first_token_ms, "deadline": facts.deadline_ms}
    curves = {
        "any answer": [ms for one in facts.outcomes if (ms := one.e2e_ms) is not None],
        "end to end": [ms for _, ms in _measured(facts.outcomes, e2e)],
        "TTFT": [ms for _, ms in _measured(facts.outcomes, ttft)],
    }
    return distribution(
        curves, "time from when it was due", {name: ms for name, ms in promised.items() if ms is not None}
    )


def distribution(of: Mapping[str, Sequence[float]], title: str, marks: Mapping[str, float] | None = None) -> list[Plot]:
    """Return a plot with one cumulative curve per name; empty without values."""
    lines = []
    for colour, (name, values) in enumerate(of.items()):
        if values:
            curve = sorted(max(value, _LEAST_MS) for value in values)
            ranks = sorted({math.ceil(len(curve) * (step + 1) / _CURVE_POINTS) for step in range(_CURVE_POINTS)})
            shares = [(curve[0], 0.0), *((curve[rank - 1], rank / len(curve)) for rank in ranks)]
            lines.append(Line(name, shares, colour=2 * colour % 5))
    if not lines:
        return []
    plot = Plot(title=f"Distribution: {title}", x="ms", y="share", lines=lines, log_x=True, marks=marks or {})
    return [plot]


def ttft(outcome: Outcome) -> float | None:
    return outcome.ttft_ms


def e2e(outcome: Outcome) -> float | None:
    return outcome.e2e_ms


def _measured(outcomes: Sequence[Outcome], of: Latency) -> list[tuple[float, float]]:
    """Return (asked at, ms) of each answer by the model."""
    start_s = _start_s(outcomes)
    return [
        (one.scheduled_s - start_s, max(ms, _LEAST_MS))
        for one in outcomes
        if one.by_model and (ms := of(one)) is not None
    ]


def _start_s(outcomes: Sequence[Outcome]) -> float:
    return min(one.scheduled_s for one in outcomes)


def _making(facts: LoadFacts) -> dict[str, str]:
    run, of = facts.run, facts.report
    promised = "each request's own deadlines"
    if facts.first_token_ms is not None and facts.deadline_ms is not None:
        promised = f"first text in {facts.first_token_ms:g} ms, the whole answer in {facts.deadline_ms:g} ms"
    found = {
        "command": run.command,
        "requests": f"{of.requests:,} in {of.duration_s:,.1f} s, {run.connections:,} connections at most",
        "traffic": run.input,
        "rate": "" if run.rate is None else f"{run.rate:g} a second",
        "seed": str(run.seed),
        "promised": promised,
        "ends": ", ".join(f"{name} {count:,}" for name, count in sorted(of.by_status.items())),
        "no answer": ", ".join(f"{code} {count:,}" for code, count in sorted(of.errors.by_code.items())),
        "output": f"{of.output_tokens:,} tokens, {show(of.output_tok_s)} a second",
        **facts.settings,
    }
    return {name: value for name, value in found.items() if value}


def environment_pairs(environment: Environment, before: Mapping[str, str]) -> dict[str, str]:
    """Return the environment's name-value pairs, after `before`."""
    versions = [f"Python {environment.python}", *(f"{name} {one}" for name, one in environment.versions.items())]
    return {
        **before,
        "engine": environment.engine,
        "broker": environment.broker,
        "machine": f"{environment.cpu}, {environment.cores} cores, {environment.system}",
        "load beside it": f"{environment.load_1min:g} (one minute's average, before)",
        "versions": ", ".join(versions),
        "date": environment.date,
    }
