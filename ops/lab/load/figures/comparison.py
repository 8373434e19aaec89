"""Compare the figures of two results, each with its ratio and verdict. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from ops.lab.load.figures.report import Samples
from ops.measure.bootstrap import Ratio, Statistic, Verdict, mean_of, quantile_of, ratio
from ops.measure.runner import Cell


class MeasuredOn(Struct, frozen=True, kw_only=True):
    cpu: str
    cores: int
    engine: str
    broker: str


class Result(Struct, frozen=True, kw_only=True):
    """The part of a result that is compared."""

    samples: Samples
    environment: MeasuredOn


@dataclass(frozen=True, slots=True)
class _Figure:
    """A figure `name`, computed from the requests' `values`."""

    name: str
    values: str
    statistic: Statistic
    more_is_better: bool = False


FIGURES: Final = (
    _Figure("TTFT p50 ms", "ttft_ms", quantile_of(0.50)),
    _Figure("TTFT p99 ms", "ttft_ms", quantile_of(0.99)),
    _Figure("end to end p50 ms", "e2e_ms", quantile_of(0.50)),
    _Figure("end to end p99 ms", "e2e_ms", quantile_of(0.99)),
    _Figure("in time, share", "in_time", mean_of, more_is_better=True),
)


@dataclass(frozen=True, slots=True)
class Compared:
    figure: str
    ratio: Ratio | None
    verdict: Verdict


def compared(before: Samples, after: Samples, *, tolerance: float) -> list[Compared]:
    """Compare each figure of `after` with that of `before`. A figure that either lacks counts as no difference."""
    rows = []
    for figure in FIGURES:
        found = ratio(getattr(before, figure.values), getattr(after, figure.values), figure.statistic)
        verdict: Verdict = "no difference"
        if found is not None:
            verdict = found.verdict(more_is_better=figure.more_is_better, tolerance=tolerance)
        rows.append(Compared(figure.name, found, verdict))
    return rows


def worst(rows: Sequence[Compared]) -> Verdict:
    """Return the worst verdict: one regression makes the whole a regression."""
    verdicts = [row.verdict for row in rows]
    if "regression" in verdicts:
        return "regression"
    return "improvement" if "improvement" in verdicts else "no difference"


def differences(before: MeasuredOn, after: MeasuredOn) -> list[str]:
    """Return the conditions in which the two runs differ."""
    pairs = [(name, getattr(before, name), getattr(after, name)) for name in MeasuredOn.__struct_fields__]
    return [f"{name} {one}, then {other}" for name, one, other in pairs if one != other]


def rows_of(rows: Sequence[Compared], first: str, second: str) -> tuple[list[str], list[list[Cell]]]:
    """Return the titles of the table, and one row per figure: both results, their ratio, interval and verdict."""
    cells: list[list[Cell]] = []
    for row in rows:
        found = row.ratio
        if found is None:
            cells.append([row.figure, None, None, None, None, row.verdict])
            continue
        interval = f"{found.low:.3f} – {found.high:.3f}"
        cells.append([row.figure, found.a, found.b, f"{found.value:.3f}", interval, row.verdict])
    return ["", first, second, "ratio", "99 % of it", "verdict"], cells
