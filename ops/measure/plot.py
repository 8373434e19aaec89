"""A plot of lines or dots in the coordinates of a drawing, which the report's template draws. Pure."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

Points = Sequence[tuple[float, float]]
Place = tuple[float, str]

_WIDTH, _HEIGHT = 720.0, 260.0
_LEFT, _RIGHT, _TOP, _GROUND = 54.0, 708.0, 34.0, 216.0
_LEAST: Final = 1e-9
_MOST_TICKS: Final = 6
_FEW_DECADES: Final = 2.2


@dataclass(frozen=True, slots=True)
class Line:
    """Points joined in their order, or dots only."""

    name: str
    points: Points
    dots: bool = False
    colour: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Values from `low` to `high`, marked at `ticks`."""

    low: float
    high: float
    ticks: Sequence[float]
    log: bool

    def share(self, value: float) -> float:
        """Return the position of a value, from 0 at `low` to 1 at `high`; values outside are clipped."""
        low, high = self.low, self.high
        if self.log:
            value, low, high = (math.log(max(part, _LEAST)) for part in (value, low, high))
        return min(1.0, max(0.0, (value - low) / (high - low)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """The positions of everything in a plot. A tick, level or mark is (position, name)."""

    lines: Sequence[Line]
    x_ticks: Sequence[Place]
    y_ticks: Sequence[Place]
    levels: Sequence[Place]
    marks: Sequence[Place]
    spans: Sequence[tuple[float, float]]
    width: float = _WIDTH
    height: float = _HEIGHT
    left: float = _LEFT
    right: float = _RIGHT
    top: float = _TOP
    ground: float = _GROUND


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A plot.

    Attributes:
        from_zero: a linear axis starts at 0 instead of the smallest value
        levels: named values of y
        marks: named values of x
        spans: shaded ranges of x
    """

    title: str
    x: str
    y: str
    lines: Sequence[Line]
    log_x: bool = False
    log_y: bool = False
    from_zero: bool = True
    levels: Mapping[str, float] = field(default_factory=dict)
    marks: Mapping[str, float] = field(default_factory=dict)
    spans: Sequence[tuple[float, float]] = ()

    def geometry(self) -> Geometry:
        """Compute the positions. Raises `ValueError` if no line has a point."""
        points = [point for line in self.lines for point in line.points]
        x_axis = self._axis([x for x, _ in points] + list(self.marks.values()), log=self.log_x)
        y_axis = self._axis([y for _, y in points] + list(self.levels.values()), log=self.log_y)

        def across(value: float) -> float:
            return round(_LEFT + (_RIGHT - _LEFT) * x_axis.share(value), 1)

        def up(value: float) -> float:
            return round(_GROUND - (_GROUND - _TOP) * y_axis.share(value), 1)

        return Geometry(
            lines=[
                Line(line.name, [(across(x), up(y)) for x, y in line.points], line.dots, line.colour)
                for line in self.lines
                if line.points
            ],
            x_ticks=_named(x_axis.ticks, across),
            y_ticks=_named(y_axis.ticks, up),
            levels=[(up(value), name) for name, value in self.levels.items()],
            marks=[(across(value), name) for name, value in self.marks.items()],
            spans=[(across(start), round(across(end) - across(start), 1)) for start, end in self.spans],
        )

    def _axis(self, values: Sequence[float], *, log: bool) -> Axis:
        if log:
            return _logarithmic(values)
        low = 0.0 if self.from_zero else min(values)
        span = (max(values) - low) or 1.0
        step = next(step for step in _round_steps() if step * _MOST_TICKS >= span)
        first, last = math.floor(low / step + _LEAST), math.ceil((low + span) / step - _LEAST)
        return Axis(low=first * step, high=last * step, ticks=[n * step for n in range(first, last + 1)], log=False)


def _logarithmic(values: Sequence[float]) -> Axis:
    """Return an axis over all values, with ticks at 1, 2 and 5 of each decade, or only at decades if there are many."""
    low, high = max(min(values), _LEAST), max(*values, _LEAST)
    low, high = (low, high) if high > low * 1.5 else (low / 1.5, high * 1.5)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if math.log10(high / low) < _FEW_DECADES else (1,)
    ticks = [10.0**decade * step for decade in decades for step in steps]
    return Axis(low=low, high=high, ticks=[tick for tick in ticks if low <= tick <= high], log=True)


def _round_steps() -> Sequence[float]:
    return [10.0**power * step for power in range(-10, 13) for step in (1, 2, 5)]


def _named(ticks: Sequence[float], place: Callable[[float], float]) -> list[Place]:
    """Return the ticks with names that are exact and as short as possible: 0.5, 20, 1,000."""
    return [(place(tick), f"{tick:,.0f}" if abs(tick) >= 1_000 else f"{tick:.6g}") for tick in ticks]  # noqa: PLR2004
