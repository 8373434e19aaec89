"""The search for the knee as a report: each rate that was tried, what it came to, and the bounds. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ops.load.figures.tries import Bounds, Try
from ops.load.pages.load import environment_pairs, headline
from ops.load.pages.style import STYLE
from ops.measure.environment import Environment
from ops.measure.page import Html, figure, page, paragraph, section, table, text
from ops.measure.runner import Cell
from ops.measure.svg import Axis, Plot, linear, logarithmic

_HEIGHT: Final = 240.0
_RIGHT: Final = 30.0
_HEADROOM: Final = 1.6  # above the bound, for its name
_KEYS: Final = {"v-passed": "within all bounds", "v-failed": "not"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KneeFacts:
    """`rate` 0: none passed. `at_limit`: none failed. `asked` is how it was searched."""

    rate: float
    at_limit: bool
    bounds: Bounds
    tries: Sequence[Try]
    environment: Environment
    asked: Mapping[str, str]


def knee_page(facts: KneeFacts) -> str:
    """The whole file."""
    drawn = [_search(facts), *_latencies(facts), _goodput(facts)]
    figures = [
        figure(number, caption, [drawing], keys=_KEYS if number == 1 else None)
        for number, (caption, drawing) in enumerate(drawn, start=1)
    ]
    parts = [
        *figures,
        section("Tries", _table(facts.tries)),
        section("How this was made", environment_pairs(facts.environment, facts.asked)),
    ]
    return page("How much is borne", _lead(facts), parts, style=STYLE)


def _lead(facts: KneeFacts) -> Html:
    told = paragraph(
        text(
            "The largest rate of requests at which the answers are still as they should be: "
            f"{'; '.join(_bounds(facts.bounds))}. Above it they are not."
        )
    )
    if not facts.rate:
        return Html(told + headline({"requests a second: not even the first rate passed": "none"}))
    name = "requests a second, the most that was tried: it may be more" if facts.at_limit else "requests a second"
    best = [one for one in facts.tries if one.rate == facts.rate and not one.broken]
    return Html(
        told
        + headline(
            {
                name: f"{facts.rate:g}",
                "TTFT p99 there, worst try that passed": _worst([one.ttft_ms.p99 for one in best]),
                "end to end p99 there, worst try that passed": _worst([one.e2e_ms.p99 for one in best]),
                "in time there, worst try that passed": f"{min(one.in_time for one in best):.1%}" if best else "–",
            }
        )
    )


def _bounds(bounds: Bounds) -> list[str]:
    said = [
        f"{name} p99 within {most:g} ms"
        for name, most in (("TTFT", bounds.ttft_p99_ms), ("end to end", bounds.e2e_p99_ms))
        if most is not None
    ]
    return [*said, f"at least {bounds.goodput:.1%} of all requests answered by the model in time"]


def _worst(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{max(known):,.0f} ms" if known else "–"


def _search(facts: KneeFacts) -> tuple[str, str]:
    """The way of the search: try after try."""
    rates = [one.rate for one in facts.tries]
    plot = _plot(linear("try", [float(len(rates))]), linear("requests a second", rates), "Rates tried, in their order")
    if facts.rate:
        plot.level(facts.rate, f"knee: {facts.rate:g}")
    for number, one in enumerate(facts.tries, start=1):
        plot.point(number, one.rate, _kind(one), "")
    return "The rates in the order in which they were tried.", plot.text()


def _latencies(facts: KneeFacts) -> list[tuple[str, str]]:
    """Where anything was answered."""
    bounds = facts.bounds
    of: dict[str, tuple[Callable[[Try], float | None], float | None]] = {
        "TTFT p99": (lambda one: one.ttft_ms.p99, bounds.ttft_p99_ms),
        "end to end p99": (lambda one: one.e2e_ms.p99, bounds.e2e_p99_ms),
    }
    drawn = []
    for title, (value_of, bound) in of.items():
        points = [(one, value) for one in facts.tries if (value := value_of(one)) is not None and value > 0]
        if not points:
            continue
        values = [value for _, value in points] + ([_HEADROOM * bound] if bound is not None else [])
        plot = _plot(_rates(facts.tries), logarithmic(f"{title}, ms", values), f"{title} against the rate")
        if bound is not None:
            plot.level(bound, f"bound: {bound:g} ms")
        if facts.rate:
            plot.mark(facts.rate, "knee")
        for one, value in points:
            plot.point(one.rate, value, _kind(one), "")
        drawn.append((f"{title} of the model's answers at each rate; a dot is a try.", plot.text()))
    return drawn


def _goodput(facts: KneeFacts) -> tuple[str, str]:
    plot = _plot(_rates(facts.tries), linear("share in time", [1.0], most=1.0), "In time against the rate")
    plot.level(facts.bounds.goodput, f"bound: {facts.bounds.goodput:.1%}")
    if facts.rate:
        plot.mark(facts.rate, "knee")
    for one in facts.tries:
        plot.point(one.rate, one.in_time, _kind(one), "")
    return "The share of all requests that the model answered in time.", plot.text()


def _plot(x: Axis, y: Axis, summary: str) -> Plot:
    return Plot(x, y, summary, height=_HEIGHT, right=_RIGHT)


def _rates(tries: Sequence[Try]) -> Axis:
    return linear("requests a second", [one.rate for one in tries])


def _kind(one: Try) -> str:
    return "v-failed" if one.broken else "full v-passed"


def _table(tries: Sequence[Try]) -> Html:
    titles = (
        "try", "requests/s", "requests", "TTFT p50 ms", "p99 ms", "end to end p50 ms", "p99 ms", "in time",
        "no answer", "verdict",
    )  # fmt: skip
    rows: list[list[Cell]] = [
        [
            number, f"{one.rate:g}", one.requests, one.ttft_ms.p50, one.ttft_ms.p99, one.e2e_ms.p50, one.e2e_ms.p99,
            f"{one.in_time:.1%}", one.errors, ", ".join(one.broken) or "within bounds",
        ]
        for number, one in enumerate(tries, start=1)
    ]  # fmt: skip
    return table(titles, rows, kinds=[_kind(one).removeprefix("full ") for one in tries])
