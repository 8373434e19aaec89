"""The upper bound of a forecast, calibrated online by how far earlier forecasts were off. Pure.

The bound is a quantile of the last residuals, in units of what is usual. The quantile's level moves after each bin: up
after a bin that exceeded its bound, down after one that did not, so that in the long run the asked share stays below,
also while the series changes (adaptive conformal inference: Gibbs and Candès, "Adaptive conformal inference under
distribution shift", NeurIPS 2021)."""

from bisect import insort
from collections import deque
from math import ceil, isnan, nan
from typing import Final

_WINDOW: Final = 288
_FEWEST: Final = 20
_STEP: Final = 0.01  # of the level, a bin
# The unit of a residual is the usual value and this share of the expected one. In shares of the expected value alone, a
# burst out of nearly nothing would later raise the bound a hundredfold.
_OF_EXPECTED: Final = 0.25


class UpperBound:
    """The bound of one quantile, a fixed number of `steps` ahead. `promise` once a bin, after `settle`. While few
    residuals are known it is the expected value."""

    def __init__(self, steps: int, quantile: float) -> None:
        self._miss = self._level = 1.0 - quantile
        self._promised: deque[tuple[float, float, float]] = deque(maxlen=steps)
        self._residuals: deque[float] = deque()
        self._ordered: list[float] = []
        self._usual = nan
        self._num_values = 0
        self.upper = nan

    def settle(self, value: float) -> None:
        """Learn how far off the forecast of this bin was. Nothing is learned of a NaN."""
        full = len(self._promised) == self._promised.maxlen
        expected, unit, upper = self._promised.popleft() if full else (nan, nan, nan)
        if isnan(value):
            return
        self._num_values += 1
        usual = 0.0 if isnan(self._usual) else self._usual
        self._usual = usual + (value - usual) / min(self._num_values, _WINDOW)
        if isnan(expected) or unit <= 0.0:
            return
        if len(self._residuals) >= _FEWEST:
            self._level += _STEP * (self._miss - (value > upper))
        residual = (value - expected) / unit
        self._residuals.append(residual)
        insort(self._ordered, residual)
        if len(self._residuals) > _WINDOW:
            self._ordered.remove(self._residuals.popleft())

    def promise(self, expected: float) -> None:
        """Take what is `expected` of the bin `steps` after the one that was settled last."""
        unit = self._usual + _OF_EXPECTED * expected
        above = 0.0 if len(self._ordered) < _FEWEST else self._residual() * unit
        self.upper = max(expected + above, 0.0)
        self._promised.append((expected, unit, self.upper))

    def _residual(self) -> float:
        level = min(max(self._level, 0.0), 1.0)
        rank = ceil((len(self._ordered) + 1) * (1.0 - level))
        return self._ordered[min(max(rank, 1), len(self._ordered)) - 1]
