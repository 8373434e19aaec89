"""The rows as a table on the terminal, with the ratios that matter. Pure."""

from collections.abc import Sequence

from ops.lab.simulate.rows import SimulationRow
from ops.measure.runner import Cell, markdown

_OURS = "goodput"


def table(rows: Sequence[SimulationRow]) -> str:
    """Markdown. "goodput ×" is how many times this policy's answers in time our policy gives on the same trace."""
    header = (
        "trace", "load", "policy", "requests", "in deadline", "late", "fallback", "refused",
        "TTFT p50 ms", "TTFT p99 ms", "of bound", "goodput ×", "rows a step", "wasted steps", "× real time",
    )  # fmt: skip
    return markdown(header, [_line(row, rows) for row in rows])


def ratio_to_ours(row: SimulationRow, rows: Sequence[SimulationRow]) -> float | None:
    """Return how many times this row's answers in time our policy gives; None where it was not run or this gives
    none."""
    ours = next((one for one in rows if one.policy == _OURS and _same(one, row)), None)
    return ours.model_in_deadline / row.model_in_deadline if ours is not None and row.model_in_deadline else None


def _same(one: SimulationRow, other: SimulationRow) -> bool:
    return (one.trace, one.load, one.seed) == (other.trace, other.load, other.seed)


def _line(row: SimulationRow, rows: Sequence[SimulationRow]) -> tuple[Cell, ...]:
    return (
        row.trace,
        "as recorded" if row.load is None else f"{row.load:g}",
        row.policy,
        row.requests,
        row.model_in_deadline,
        row.model_late,
        row.fallback,
        row.refused,
        row.ttft_p50_ms,
        row.ttft_p99_ms,
        row.of_bound,
        ratio_to_ours(row, rows),
        row.mean_batch_rows,
        None if row.wasted_steps is None else f"{row.wasted_steps:.2%}",
        row.times_real_time,
    )
