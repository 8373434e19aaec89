"""Plots as SVG text: axes, lines, steps, bars, labels. Pure; colours and type are the page's."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

Points = Sequence[tuple[float, float]]

_LEFT, _RIGHT, _TOP, _BOTTOM = 54.0, 118.0, 28.0, 44.0
_LABEL_GAP: Final = 14.0
_LEAST: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Axis:
    """Values from `low` to `high`; `ticks` are marked."""

    title: str
    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False

    def share(self, value: float) -> float:
        """0 at `low`, 1 at `high`."""
        low, high = self.low, self.high
        if self.log:
            value, low, high = (math.log(max(part, _LEAST)) for part in (value, low, high))
        return min(1.0, max(0.0, (value - low) / (high - low)))


def linear(title: str, values: Sequence[float], *, most: float | None = None) -> Axis:
    """From 0 to a round number above all values."""
    top = most if most is not None else max([*values, _LEAST])
    step = next(step for step in _round_steps() if step * 6 >= top)
    high = most if most is not None else step * math.ceil(top / step - _LEAST)
    return Axis(title, 0.0, high, tuple(step * index for index in range(round(high / step) + 1)))


def logarithmic(title: str, values: Sequence[float]) -> Axis:
    """Over all values; marked at 1, 2 and 5 of each decade, or at decades alone where these are many."""
    low, high = max(min(values), _LEAST), max(values)
    low, high = (low, high) if high > low * 1.5 else (low / 1.5, high * 1.5)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if math.log10(high / low) < 2.2 else (1,)  # noqa: PLR2004 - as fits beside each other
    ticks = tuple(10.0**decade * step for decade in decades for step in steps)
    return Axis(title, low, high, tuple(tick for tick in ticks if low <= tick <= high), log=True)


def _round_steps() -> Sequence[float]:
    return [10.0**power * step for power in range(-4, 9) for step in (1, 2, 5)]


@dataclass(slots=True)
class Plot:
    """A drawing in the making. `summary` is read out in place of it."""

    x: Axis
    y: Axis
    summary: str
    width: float = 640.0
    height: float = 330.0
    right: float = _RIGHT
    threads: bool = True
    _behind: list[str] = field(default_factory=list)
    _parts: list[str] = field(default_factory=list)
    _labels: list[tuple[float, float, str, str]] = field(default_factory=list)

    def at(self, x: float, y: float) -> tuple[float, float]:
        across, down = self.width - _LEFT - self.right, self.height - _TOP - _BOTTOM
        return _LEFT + across * self.x.share(x), _TOP + down * (1 - self.y.share(y))

    def line(self, points: Points, kind: str, label: str, *, dots: bool = False) -> None:
        places = [self.at(x, y) for x, y in points]
        path = "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        self._parts.append(f'<path class="line {kind}" d="{path}"/>')
        if dots:
            self._parts += [f'<circle class="dot {kind}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in places]
        self._labels.append((*places[-1], kind, label))

    def point(self, x: float, y: float, kind: str, label: str) -> None:
        across, down = self.at(x, y)
        self._parts.append(f'<circle class="dot {kind}" cx="{across:.1f}" cy="{down:.1f}" r="4"/>')
        if label:
            self._parts.append(f'<text class="note" x="{across + 8:.1f}" y="{down - 6:.1f}">{escape(label)}</text>')

    def specks(self, points: Points, kind: str) -> None:
        """Many small dots without a name."""
        places = [self.at(x, y) for x, y in points]
        self._parts += [f'<circle class="speck {kind}" cx="{x:.1f}" cy="{y:.1f}" r="1.8"/>' for x, y in places]

    def mark(self, x: float, label: str) -> None:
        """An upright line across the drawing, named at its head."""
        across, ground = self.at(x, self.y.low)
        self._parts.append(f'<path class="mark" d="M{across:.1f} {ground:.1f} V{_TOP:.1f}"/>')
        self._parts.append(f'<text class="note x" x="{across:.1f}" y="{_TOP - 6:.1f}">{escape(label)}</text>')

    def level(self, y: float, label: str) -> None:
        """A level line across the drawing, named above its beginning."""
        left, height = self.at(self.x.low, y)
        end = self.at(self.x.high, y)[0]
        self._parts.append(f'<path class="mark" d="M{left:.1f} {height:.1f} H{end:.1f}"/>')
        self._parts.append(f'<text class="note" x="{left + 5:.1f}" y="{height - 5:.1f}">{escape(label)}</text>')

    def span(self, start: float, end: float) -> None:
        """A shaded stretch of the x-axis, behind all else."""
        left, ground = self.at(start, self.y.low)
        right = self.at(end, self.y.low)[0]
        place = f'x="{left:.1f}" y="{_TOP:.1f}" width="{right - left:.1f}" height="{ground - _TOP:.1f}"'
        self._behind.append(f'<rect class="span" {place}/>')

    def bar(self, x: float, y: float, width: float, kind: str) -> None:
        """From the x-axis up to `y`, centred on `x`."""
        left, top = self.at(x - width / 2, y)
        end, ground = self.at(x + width / 2, 0.0)
        place = f'x="{left:.1f}" y="{top:.1f}" width="{max(0.5, end - left - 0.6):.1f}" height="{ground - top:.1f}"'
        self._parts.append(f'<rect class="bar {kind}" {place}/>')

    def text(self) -> str:
        """The whole drawing."""
        return (
            f'<svg viewBox="0 0 {self.width:g} {self.height:g}" role="img" aria-label="{escape(self.summary)}">'
            f"{''.join(self._behind)}{self._axes()}{''.join(self._parts)}{self._end_labels()}</svg>"
        )

    def _axes(self) -> str:
        left, ground = self.at(self.x.low, self.y.low)
        end, top = self.at(self.x.high, self.y.high)
        parts = [f'<path class="axis" d="M{left:.1f} {ground:.1f} H{end:.1f}"/>']
        for tick in self.y.ticks:
            y = self.at(self.x.low, tick)[1]
            parts.append(f'<path class="grid" d="M{left:.1f} {y:.1f} H{end:.1f}"/>')
            parts.append(f'<text class="tick y" x="{left - 8:.1f}" y="{y + 4:.1f}">{number(tick)}</text>')
        for tick in self.x.ticks:
            x = self.at(tick, self.y.low)[0]
            parts.append(f'<path class="axis" d="M{x:.1f} {ground:.1f} v4"/>')
            parts.append(f'<text class="tick x" x="{x:.1f}" y="{ground + 18:.1f}">{number(tick)}</text>')
        middle = (left + end) / 2
        parts.append(f'<text class="title x" x="{middle:.1f}" y="{self.height - 6:.1f}">{escape(self.x.title)}</text>')
        parts.append(f'<text class="title" x="{left:.1f}" y="{top - 14:.1f}">{escape(self.y.title)}</text>')
        return "".join(parts)

    def _end_labels(self) -> str:
        """Each line's name at its end, apart from its neighbours', with a thread to it where it had to move."""
        labels = sorted(self._labels, key=lambda label: label[1])
        tops = _spread([y for _, y, _, _ in labels], _TOP + 4, self.height - _BOTTOM)
        parts: list[str] = []
        for (x, y, kind, text), top in zip(labels, tops, strict=True):
            to = self.width - self.right + 10
            if self.threads:
                parts.append(f'<path class="thread" d="M{x + 4:.1f} {y:.1f} L{to - 3:.1f} {top:.1f}"/>')
            parts.append(f'<text class="name {kind}" x="{to:.1f}" y="{top + 4:.1f}">{escape(text)}</text>')
        return "".join(parts)


def number(value: float) -> str:
    """As short as it is exact: 0.5, 20, 1,000."""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:g}"  # noqa: PLR2004 - where the comma begins


def stacked_bar(parts: Sequence[tuple[float, str]], *, width: float = 420.0, height: float = 14.0) -> str:
    """Shares beside each other; each is (value, kind)."""
    total = sum(value for value, _ in parts) or 1.0
    left, drawn = 0.0, list[str]()
    for value, kind in parts:
        share = width * value / total
        if share > 0:
            drawn.append(f'<rect class="part {kind}" x="{left:.1f}" y="0" width="{share:.1f}" height="{height:g}"/>')
        left += share
    box = f'viewBox="0 0 {width:g} {height:g}" preserveAspectRatio="none" aria-hidden="true"'
    return f'<svg class="stack" {box}>{"".join(drawn)}</svg>'


def _spread(tops: Sequence[float], least: float, most: float) -> list[float]:
    """The ascending places moved apart, within the plot where there is room."""
    placed: list[float] = []
    for top in tops:
        placed.append(max(top, least, placed[-1] + _LABEL_GAP) if placed else max(top, least))
    limit: Callable[[int], float] = lambda index: most - _LABEL_GAP * (len(placed) - 1 - index)  # noqa: E731
    return [min(top, max(limit(index), least + _LABEL_GAP * index)) for index, top in enumerate(placed)]
