"""The report of the search for the knee: each rate tried, its result, and the bounds. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ops.lab.load.figures.tries import TITLES, Bounds, Try, rows_of
from ops.lab.load.pages.load import environment_pairs
from ops.measure.environment import Environment
from ops.measure.plot import Line, Plot
from ops.measure.report import Part, report


@dataclass(frozen=True, slots=True, kw_only=True)
class KneeFacts:
    """The facts of the report. `rate` is 0 if no rate passed, `at_limit` is True if no rate failed, and `asked`
    describes the search."""

    rate: float
    at_limit: bool
    bounds: Bounds
    tries: Sequence[Try]
    environment: Environment
    asked: Mapping[str, str]


def knee_page(facts: KneeFacts) -> str:
    """Return the HTML file."""
    lead = (
        "The largest rate of requests at which the answers stay within bounds: "
        f"{'; '.join(_bounds(facts.bounds))}. Above it they are not."
    )
    parts = (
        Part(title="Against the rate", text="A dot is a try.", plots=_plots(facts)),
        Part(title="Tries, in their order", titles=TITLES, rows=rows_of(facts.tries)),
        Part(title="How this was made", pairs=environment_pairs(facts.environment, facts.asked)),
    )
    return report("Largest load within bounds", lead, parts, headline=_headline(facts))


def _headline(facts: KneeFacts) -> dict[str, str]:
    if not facts.rate:
        return {"requests per second: the first rate did not pass": "none"}
    name = "requests a second, the most that was tried: it may be more" if facts.at_limit else "requests a second"
    best = [one for one in facts.tries if one.rate == facts.rate and not one.broken]
    return {
        name: f"{facts.rate:g}",
        "TTFT p99 there, worst try that passed": _worst([one.ttft_ms.p99 for one in best]),
        "end to end p99 there, worst try that passed": _worst([one.e2e_ms.p99 for one in best]),
        "in time there, worst try that passed": f"{min(one.in_time for one in best):.1%}" if best else "–",
    }


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


def _plots(facts: KneeFacts) -> list[Plot]:
    """Return one plot for each quantity with values."""
    of: dict[str, tuple[Callable[[Try], float | None], float | None]] = {
        "TTFT p99, ms": (lambda one: one.ttft_ms.p99, facts.bounds.ttft_p99_ms),
        "end to end p99, ms": (lambda one: one.e2e_ms.p99, facts.bounds.e2e_p99_ms),
        "share in time": (lambda one: one.in_time, facts.bounds.goodput),
    }
    plots = []
    for title, (value_of, bound) in of.items():
        passed, failed = (
            [(one.rate, value) for one in facts.tries if bool(one.broken) is broken and (value := value_of(one))]
            for broken in (False, True)
        )
        if passed or failed:
            plots.append(
                Plot(
                    title=f"{title}, against the rate",
                    x="requests a second",
                    y=title,
                    lines=(Line("within all bounds", passed, dots=True), Line("not", failed, dots=True, colour=1)),
                    levels={} if bound is None else {f"bound: {bound:g}": bound},
                    marks={f"knee: {facts.rate:g}": facts.rate} if facts.rate else {},
                )
            )
    return plots
