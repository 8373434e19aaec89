"""Compare a load's outcomes by bucket or by phase. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from ops.lab.client.outcome import Outcome
from ops.lab.load.figures.report import LoadReport, summarise
from ops.measure.quantiles import Quantiles
from ops.measure.runner import Cell, show
from shared.wire.outcome import Source

# "mixed" counts as an answer by the model; "quote" claims as little as "unsure".
_COLUMNS: Final[dict[str, tuple[Source, ...]]] = {
    "by the model": ("model", "mixed"),
    "FAQ": ("faq",),
    "unsure": ("quote", "unsure"),
    "busy": ("busy",),
}
_HEADER = ("requests", *_COLUMNS, "errors", "in time", "TTFT p50/p99 ms", "end to end p50/p99 ms")


def reports(groups: Mapping[str, Sequence[Outcome]]) -> dict[str, LoadReport]:
    """Return a report for each group that has outcomes."""
    return {name: summarise(outcomes) for name, outcomes in groups.items() if outcomes}


def rows_of(title: str, of: Mapping[str, LoadReport]) -> tuple[list[str], list[list[Cell]]]:
    """Return the titles and one row per group."""
    rows: list[list[Cell]] = [
        [
            name,
            report.requests,
            *(sum(report.by_source[source] for source in sources) for sources in _COLUMNS.values()),
            report.errors.total,
            f"{report.goodput.share:.1%}",
            _two(report.ttft_ms),
            _two(report.e2e_ms),
        ]
        for name, report in of.items()
    ]
    return [title, *_HEADER], rows


def _two(of: Quantiles) -> str:
    return f"{show(of.p50)} / {show(of.p99)}"
