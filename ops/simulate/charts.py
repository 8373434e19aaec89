"""Which plots a report has, from the rows. Pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from ops.measure.svg import Plot, linear, logarithmic, stacked_bar
from ops.simulate.rows import Row

_PANEL_WIDTH = 310.0
_PANEL_HEIGHT = 200.0
_PARTS = ("in deadline", "late", "fallback", "refused")


@dataclass(frozen=True, slots=True)
class Figure:
    """Drawings that share a caption; `wide` ones stand alone in their line."""

    caption: str
    drawings: tuple[str, ...]
    wide: bool = True


def figures(rows: Sequence[Row]) -> list[Figure]:
    """Those that the rows have something to show in."""
    made = [_outcomes(rows), *_over_load(rows), *_ttft(rows), *_batches(rows)]
    return [figure for figure in made if figure.drawings]


def kind_of(row: Row) -> str:
    """The class that gives a policy its colour and dashes."""
    return f"p-{row.policy}"


def _cases(rows: Iterable[Row]) -> list[tuple[str, list[Row]]]:
    """The rows of each trace at each load."""
    return [(name, list(group)) for name, group in groupby(rows, key=case_name)]


def _telling(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Of each trace the cases at its least, middle and greatest load: more would be a wall of plots."""
    found: list[tuple[str, list[Row]]] = []
    for _, group in _by(rows, lambda row: row.trace):
        cases = sorted(_cases(group), key=lambda case: case[1][0].load or 0.0)
        places = sorted({0, len(cases) // 2, len(cases) - 1})
        found += [cases[place] for place in places]
    return found


def case_name(row: Row) -> str:
    return row.trace if row.load is None else f"{row.trace} at {row.load:g}×"


def _outcomes(rows: Sequence[Row]) -> Figure:
    drawings = tuple(_outcome_table(name, case) for name, case in _cases(rows))
    return Figure(
        "What became of the requests: a model's whole answer in time; a model's answer that was late or cut; the "
        "fallback; a refusal. The bound is what one who knows the future could not exceed.",
        drawings,
        wide=len(drawings) == 1,
    )


def _outcome_table(name: str, case: Sequence[Row]) -> str:
    lines = "".join(
        f"<tr class='{kind_of(row)}'><th scope='row'>{escape(row.policy)}</th><td>{stacked_bar(_parts(row))}</td>"
        f"<td class='figure'>{row.model_in_deadline:,}</td></tr>"
        for row in case
    )
    head = f"<caption>{escape(name)}, {case[0].requests:,} requests</caption>"
    return f"<table class='outcomes'>{head}<tbody>{lines}</tbody></table>"


def _parts(row: Row) -> list[tuple[float, str]]:
    values = (row.model_in_deadline, row.model_late, row.fallback, row.refused)
    return [(value, "o-" + part.replace(" ", "-")) for value, part in zip(values, _PARTS, strict=True)]


def _over_load(rows: Sequence[Row]) -> Iterable[Figure]:
    """Goodput against load, for each trace that was run at several."""
    for trace, group in _by(rows, lambda row: row.trace):
        loaded = [row for row in group if row.load is not None]
        loads = sorted({row.load for row in loaded if row.load is not None})
        if len(loads) < 2:  # noqa: PLR2004 - a line needs two
            continue
        plot = Plot(
            logarithmic("load, multiples of capacity", loads),
            linear("answers in time, a second", [row.goodput_per_s for row in loaded]),
            f"Goodput against load, trace {trace}",
        )
        for policy, line in _by(loaded, lambda row: row.policy):
            points = sorted((row.load or 0.0, row.goodput_per_s) for row in line)
            plot.line(points, kind_of(line[0]), policy, dots=True)
        yield Figure(
            f"Goodput against load, trace {trace}: model answers that ended in time, a second.", (plot.text(),)
        )


def _ttft(rows: Sequence[Row]) -> Iterable[Figure]:
    drawings = [_ttft_plot(name, [row for row in case if row.ttft_curve]) for name, case in _telling(rows)]
    yield Figure(
        "Time to the first token, of every answer that the model began: the share that had it by then. A policy that "
        "begins fewer is not flattered here: the table above says how many.",
        tuple(drawing for drawing in drawings if drawing),
    )


def _ttft_plot(name: str, case: Sequence[Row]) -> str:
    values = [max(value, 1.0) for row in case for value in row.ttft_curve]
    if not values:
        return ""
    share = linear(f"share of answers: {name}", [1.0], most=1.0)
    plot = Plot(logarithmic("ms", values), share, f"Time to first token, {name}", threads=False)
    for row in case:
        points = [(max(value, 1.0), (index + 0.5) / len(row.ttft_curve)) for index, value in enumerate(row.ttft_curve)]
        plot.line(points, kind_of(row), row.policy)
    return plot.text()


def _batches(rows: Sequence[Row]) -> Iterable[Figure]:
    for name, case in _telling(rows):
        drawings = tuple(_histogram(row) for row in case if row.rows_histogram)
        yield Figure(f"Rows a decode step, {name}: the share of steps that had so many.", drawings, wide=False)


def _histogram(row: Row) -> str:
    total = sum(row.rows_histogram.values())
    shares = {rows: times / total for rows, times in row.rows_histogram.items()}
    plot = Plot(
        linear("rows", [], most=float(row.slots)),
        linear(f"{row.policy}, mean {row.mean_batch_rows:g}", list(shares.values())),
        f"Batch sizes of {row.policy}",
        width=_PANEL_WIDTH,
        height=_PANEL_HEIGHT,
        right=10.0,
    )
    for rows, share in shares.items():
        plot.bar(rows - 0.5, share, 1.0, kind_of(row))
    return plot.text()


def _by(rows: Iterable[Row], key: Callable[[Row], str]) -> list[tuple[str, list[Row]]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return list(found.items())
