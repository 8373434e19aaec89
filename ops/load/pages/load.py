"""A load's report for whoever was not there: what was asked, what came of it, when, and how it was made. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ops.load.figures.outcome import Outcome
from ops.load.figures.report import LoadReport, Run
from ops.load.pages.charts import (
    IN_TIME,
    LATE,
    MIXED,
    NONE,
    Asked,
    Latency,
    by_bucket,
    counted,
    distribution,
    e2e,
    end_bar,
    kind_of,
    latencies,
    rates,
    ttft,
)
from ops.load.pages.style import STYLE
from ops.measure.environment import Environment
from ops.measure.page import Html, figure, page, pairs, paragraph, section, table, text
from ops.measure.quantiles import Quantiles
from ops.measure.runner import Cell, show
from shared.wire.messages import BY_MODEL
from shared.wire.topics import BUCKETS

_TERMS: Final = (
    "TTFT is the time to the first text, end to end that to the answer's last word, TPOT the time for each token "
    "between them: of the model's answers, by the asking client's clock, from the moment that the request was due. "
    "Any answer is end to end of every answer, whoever gave it."
)
_SOURCES: Final = {
    IN_TIME: "the model's whole answer within its deadline",
    LATE: "the model's answer, after its deadline or cut at it",
    MIXED: "the same, with an FAQ entry's words in some place",
    "faq": "an FAQ entry in place of the model's words",
    "courtesy": "a greeting or thanks, returned",
    "unsure": "it says that nothing is known of this",
    "busy": "it asks to try again",
    "handoff": "a person takes over",
    NONE: "refused by the gateway, or nothing came at all",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFacts:
    """`told` says in a sentence what was asked. `groups` are reports by `grouped_by`, with `more` columns of theirs.
    The deadlines are the gateway's, None where each request has its own. `surges` are seconds from the start,
    `settings` those of the system's that count here."""

    title: str
    told: str
    asked: Sequence[Asked]
    report: LoadReport
    run: Run
    environment: Environment
    grouped_by: str
    groups: Mapping[str, LoadReport]
    first_token_ms: float | None = None
    deadline_ms: float | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    surges: Sequence[tuple[float, float]] = ()
    more: Mapping[str, Mapping[str, Cell]] = field(default_factory=dict)


def load_page(facts: LoadFacts) -> str:
    """The whole file."""
    parts = [
        _ends(facts.asked),
        *_figures(facts),
        section("Latencies", paragraph(text(_TERMS)), _latencies(facts.report)),
        section(f"By {facts.grouped_by}", _groups(facts)),
        section("How this was made", environment_pairs(facts.environment, _making(facts))),
    ]
    return page(facts.title, Html(f"{paragraph(text(facts.told))}{_headline(facts.report)}"), parts, style=STYLE)


def headline(figures: Mapping[str, str]) -> Html:
    """What is to be seen at once: what it is → the figure."""
    cells = "".join(f"<div><b>{text(value)}</b><span>{text(name)}</span></div>" for name, value in figures.items())
    return Html(f"<div class='headline'>{cells}</div>")


def _headline(report: LoadReport) -> Html:
    instead = sum(count for source, count in report.by_source.items() if source not in BY_MODEL)
    return headline(
        {
            "answered by the model within the deadline": f"{report.goodput.share:.1%}",
            "such answers a second": show(report.goodput.per_s),
            "ms to the model's first text, p50 / p99": _two(report.ttft_ms),
            "answered in the model's stead": f"{instead:,}",
            "refused, or without an answer": f"{report.errors.total:,}",
        }
    )


def _two(of: Quantiles) -> str:
    if of.p50 is None or of.p99 is None:
        return "–"
    return f"{of.p50:,.0f} / {of.p99:,.0f}"


def _ends(asked: Sequence[Asked]) -> Html:
    """What became of the requests, all and by length of question."""
    groups: dict[str, list[Asked]] = {"all": list(asked)}
    buckets = {bucket: [one for one in asked if one.bucket == bucket] for bucket in BUCKETS}
    if sum(map(bool, buckets.values())) > 1:
        groups |= {bucket: some for bucket, some in buckets.items() if some}
    lines = "".join(
        f"<tr><th scope='row'>{text(name)}</th><td>{end_bar(some)}</td><td class='figure'>{len(some):,}</td></tr>"
        for name, some in groups.items()
    )
    numbers = {end: number for end, number in counted(asked).items() if number}
    drawn = f"<table class='ends'><tbody>{lines}</tbody></table>"
    keys = {kind_of(end): end for end in numbers}
    caption = (
        "What became of the requests, and how many they are."
        if len(groups) == 1
        else ("What became of the requests, of all and by the length of the question, and how many they are.")
    )
    rows: list[list[Cell]] = [
        [end, _SOURCES.get(end, ""), number, f"{number / len(asked):.1%}"] for end, number in numbers.items()
    ]
    return Html(figure(1, caption, [drawn], keys=keys) + table(("", "", "requests", "share"), rows, heads=2))


def _figures(facts: LoadFacts) -> list[Html]:
    """Those that have something to show."""
    drawn = (_over_time(facts), _waits(facts), _distribution(facts), _of_buckets(facts))
    shown = [(caption, [one for one in drawings if one]) for caption, drawings in drawn]
    told = [(caption, drawings) for caption, drawings in shown if drawings]
    return [figure(number, caption, drawings) for number, (caption, drawings) in enumerate(told, start=2)]


def _over_time(facts: LoadFacts) -> tuple[str, list[str]]:
    caption = "Requests by when they were due; answers, and the model's in time, by when they ended."
    return caption + _shaded(facts), [rates(facts.asked, facts.surges)]


def _waits(facts: LoadFacts) -> tuple[str, list[str]]:
    caption = "The model's answers by when they were asked, a dot each; the lines are p50 and p99 of a stretch of time."
    return caption + _shaded(facts), [
        latencies(facts.asked, ttft, "TTFT", facts.surges, facts.first_token_ms),
        latencies(facts.asked, e2e, "end to end", facts.surges, facts.deadline_ms),
    ]


def _distribution(facts: LoadFacts) -> tuple[str, list[str]]:
    promised = {"first text": facts.first_token_ms, "deadline": facts.deadline_ms}
    marks = {name: ms for name, ms in promised.items() if ms is not None}
    models = [one.outcome for one in facts.asked if one.outcome.by_model]
    curves = {
        ("TTFT", "l-ttft"): _known(models, ttft),
        ("end to end", "l-e2e"): _known(models, e2e),
        ("any answer", "l-any"): _known([one.outcome for one in facts.asked], e2e),
    }
    caption = "The share of answers that had come by then." + (" What was promised is marked." if marks else "")
    return caption, [distribution(curves, "time from when it was due", marks)]


def _of_buckets(facts: LoadFacts) -> tuple[str, list[str]]:
    caption = "The same of the model's answers, by the length of the question."
    return caption, [by_bucket(facts.asked, ttft, "TTFT"), by_bucket(facts.asked, e2e, "end to end")]


def _shaded(facts: LoadFacts) -> str:
    return " The surge is shaded." if facts.surges else ""


def _known(outcomes: Sequence[Outcome], of: Latency) -> list[float]:
    return [ms for ms in map(of, outcomes) if ms is not None]


def _latencies(report: LoadReport) -> Html:
    rows = {
        "TTFT": report.ttft_ms,
        "TPOT": report.tpot_ms,
        "end to end": report.e2e_ms,
        "any answer": report.answered_ms,
        "(sent late by)": report.send_lag_ms,
    }
    return table(("ms", "p50", "p95", "p99"), [(name, of.p50, of.p95, of.p99) for name, of in rows.items()])


def _groups(facts: LoadFacts) -> Html:
    sources = [source for source in facts.report.by_source if any(of.by_source[source] for of in facts.groups.values())]
    titles = (
        "", *facts.more, "requests", *(f"by {source}" for source in sources), "no answer", "in time",
        "TTFT p50 ms", "p99 ms", "end to end p50 ms", "p99 ms",
    )  # fmt: skip
    rows: list[list[Cell]] = [
        [
            name,
            *(cells[name] for cells in facts.more.values()),
            of.requests,
            *(of.by_source[source] for source in sources),
            of.errors.total,
            f"{of.goodput.share:.1%}",
            of.ttft_ms.p50, of.ttft_ms.p99, of.e2e_ms.p50, of.e2e_ms.p99,
        ]
        for name, of in facts.groups.items()
    ]  # fmt: skip
    return table(titles, rows)


def _making(facts: LoadFacts) -> dict[str, str]:
    run, report = facts.run, facts.report
    errors = ", ".join(f"{code} {count:,}" for code, count in sorted(report.errors.by_code.items()))
    found = {
        "command": run.command,
        "requests": f"{report.requests:,} in {report.duration_s:,.1f} s, {run.connections:,} connections at most",
        "traffic": run.input,
        "rate": "" if run.rate is None else f"{run.rate:g} a second",
        "seed": str(run.seed),
        "promised": _promised(facts),
        "ends": ", ".join(f"{name} {count:,}" for name, count in sorted(report.by_status.items())),
        "no answer": errors,
        "output": f"{report.output_tokens:,} tokens, {show(report.output_tok_s)} a second",
        **facts.settings,
    }
    return {name: value for name, value in found.items() if value}


def _promised(facts: LoadFacts) -> str:
    if facts.first_token_ms is None or facts.deadline_ms is None:
        return "each request's own deadlines"
    return f"first text in {facts.first_token_ms:g} ms, the whole answer in {facts.deadline_ms:g} ms"


def environment_pairs(environment: Environment, before: Mapping[str, str]) -> Html:
    """What it ran on, after `before`."""
    return pairs(
        {
            **before,
            "engine": environment.engine,
            "broker": environment.broker,
            "machine": f"{environment.cpu}, {environment.cores} cores, {environment.system}",
            "load beside it": f"{environment.load_1min:g} (one minute's average, before)",
            "versions": ", ".join(
                [f"Python {environment.python}", *(f"{name} {number}" for name, number in environment.versions.items())]
            ),
            "date": environment.date,
        }
    )
