"""Micro-batch windows beside each other: those that `--windows` names, and what is best of them. Pure."""

from collections.abc import Sequence
from math import inf
from typing import Final

from msgspec import Struct

from ops.measure.runner import Cell, markdown
from ops.simulate.rows import Row
from shared.errors import SettingsError
from workers.schedule.bandit import learned, read_table
from workers.schedule.policies import BUSY_MS, QUIET_MS, window_by
from workers.schedule.policy import Costs
from workers.schedule.scheduler import SchedulerLimits
from workers.schedule.window import Rule, Window, adaptive, fixed

_MOST_MS: Final = 10_000.0


class Choice(Struct, frozen=True, kw_only=True):
    """A window by its name: a rule within its bounds."""

    name: str
    rule: Rule
    busy_ms: float = BUSY_MS
    quiet_ms: float = QUIET_MS

    @classmethod
    def fixed(cls, busy_ms: float, quiet_ms: float | None = None) -> "Choice":
        """Without the second, as long whether others run or not."""
        if quiet_ms is None:
            return cls(name=f"{busy_ms:g}", rule=fixed, busy_ms=busy_ms, quiet_ms=busy_ms)
        return cls(name=f"{busy_ms:g}/{quiet_ms:g}", rule=fixed, busy_ms=busy_ms, quiet_ms=quiet_ms)

    def window(self, limits: SchedulerLimits, costs: Costs) -> Window:
        return window_by(self.rule, limits=limits, costs=costs, busy_ms=self.busy_ms, quiet_ms=self.quiet_ms)


def read_windows(text: str) -> tuple[Choice, ...]:
    """Milliseconds, `busy/quiet` milliseconds, `adaptive` or `learned`, comma-separated. Raises `SettingsError`."""
    return tuple(_read(name.strip()) for name in dict.fromkeys(text.split(",")))


def windows_table(rows: Sequence[Row]) -> str:
    """Markdown: what latency each window costs, and what it buys. "front": none of the same trace is faster and gives
    at least as many answers in time, or as fast and gives more."""
    header = (
        "trace", "load", "window", "in deadline", "busy ms an answer", "TTFT p50 ms", "TTFT p99 ms", "front",
    )  # fmt: skip
    return markdown(header, [_line(row, rows) for row in rows if row.window is not None])


def on_front(row: Row, rows: Sequence[Row]) -> bool:
    """Whether a window is on the Pareto front of TTFT p50 and answers in time, of those on the same trace."""
    mine = _merits(row)
    others = [_merits(one) for one in rows if one.window is not None and _same(one, row)]
    return not any(other != mine and other[0] >= mine[0] and other[1] >= mine[1] for other in others)


def _merits(row: Row) -> tuple[float, int]:
    """One that answers nothing is slower than all."""
    return (-inf if row.ttft_p50_ms is None else -row.ttft_p50_ms, row.model_in_deadline)


def _same(one: Row, other: Row) -> bool:
    return (one.trace, one.load, one.seed) == (other.trace, other.load, other.seed)


def _line(row: Row, rows: Sequence[Row]) -> tuple[Cell, ...]:
    return (
        row.trace,
        "as recorded" if row.load is None else f"{row.load:g}",
        row.window,
        row.model_in_deadline,
        row.busy_ms_per_answer,
        row.ttft_p50_ms,
        row.ttft_p99_ms,
        "yes" if on_front(row, rows) else "",
    )


def _read(name: str) -> Choice:
    if name == "adaptive":
        return Choice(name=name, rule=adaptive)
    if name == "learned":
        return Choice(name=name, rule=learned(read_table()))
    try:
        busy_ms, *quiet_ms = [float(part) for part in name.split("/", 1)]
    except ValueError:
        raise SettingsError(f"--windows {name}: must be milliseconds, busy/quiet, adaptive or learned") from None
    for window_ms in (busy_ms, *quiet_ms):
        if not 0 <= window_ms <= _MOST_MS:
            raise SettingsError(f"--windows {name}: must be 0 to {_MOST_MS:g}")
    return Choice.fixed(busy_ms, *quiet_ms)
