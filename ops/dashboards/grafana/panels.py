"""What a dashboard is made of, before it is Grafana's JSON."""

from dataclasses import dataclass
from typing import Literal

Unit = Literal["s", "reqps", "cps", "ops", "percentunit", "short", "bytes", "Bps", "celsius", "watt", "bool", "cores"]


@dataclass(frozen=True, slots=True)
class Query:
    """`legend` names a line; `{{label}}` is that label's value."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture. `good` says what it looks like when all is well, and what it means when it does not."""

    title: str
    good: str
    unit: Unit
    queries: tuple[Query, ...]
    stacked: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """One dashboard; `name` is its file's and the end of its address."""

    name: str
    title: str
    panels: tuple[Panel, ...]


def panel(title: str, good: str, unit: Unit, *queries: tuple[str, str], stacked: bool = False) -> Panel:
    """`queries` are (expression, legend)."""
    return Panel(title, good, unit, tuple(Query(*query) for query in queries), stacked)
