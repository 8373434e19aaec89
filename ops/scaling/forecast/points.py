"""Models that expect one value: the last one, a damped trend, the one of a day or week before. Pure."""

from collections import deque
from math import isnan, nan
from typing import Protocol


class PointModel(Protocol):
    """Expects one value of each later bin. It learns from each bin as it ends, and nothing from a bin that is NaN."""

    def observe(self, value: float) -> None: ...

    def expected(self, steps: int) -> float: ...


class LastValue:
    """Expects the last value again, however far ahead: persistence, the bar that the others are held to."""

    def __init__(self) -> None:
        self._last = nan

    def observe(self, value: float) -> None:
        if not isnan(value):
            self._last = value

    def expected(self, steps: int) -> float:  # noqa: ARG002 - the same at any distance
        return self._last


class DampedSmoothing:
    """Smooths the level and a trend that fades (Gardner and McKenzie, 1985). `level` and `trend` are the shares that
    the newest value has in each, `damping` what is left of the trend from one bin to the next."""

    def __init__(self, *, level: float = 0.5, trend: float = 0.1, damping: float = 0.9) -> None:
        self._shares = (level, trend)
        self._damping = damping
        self._level = nan
        self._trend = 0.0

    def observe(self, value: float) -> None:
        if isnan(value):
            return
        if isnan(self._level):
            self._level = value
            return
        of_level, of_trend = self._shares
        fading = self._damping * self._trend
        level = of_level * value + (1 - of_level) * (self._level + fading)
        self._trend = of_trend * (level - self._level) + (1 - of_trend) * fading
        self._level = level

    def expected(self, steps: int) -> float:
        """Return at least 0: nothing less can be asked."""
        fading = sum(self._damping**step for step in range(1, steps + 1))
        return max(self._level + self._trend * fading, 0.0)  # in this order a NaN stays one


class SeasonalNaive:
    """Expects the value of `period` bins before again, and the last one where that was not recorded."""

    def __init__(self, period: int) -> None:
        self._season: deque[float] = deque(maxlen=period)
        self._last = nan

    def observe(self, value: float) -> None:
        self._season.append(value)
        if not isnan(value):
            self._last = value

    def expected(self, steps: int) -> float:
        """Return a value of the last period, however far ahead."""
        if self._season.maxlen != len(self._season):
            return self._last
        value = self._season[(steps - 1) % len(self._season)]
        return self._last if isnan(value) else value
