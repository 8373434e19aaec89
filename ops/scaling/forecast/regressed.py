"""Forecasts by regression of the expected value or of the quantile itself, fitted again at intervals. Pure."""

from collections.abc import Callable, Sequence
from math import nan
from typing import Final

import numpy as np

from ops.scaling.forecast.calibrated import Calibrated
from ops.scaling.forecast.conformal import UpperBound
from ops.scaling.forecast.features import LAGS, Past
from ops.scaling.forecast.points import DampedSmoothing
from ops.scaling.forecast.regression import Fit, Predict

_FEWEST_ROWS: Final = 720  # with fewer it leaves as much unserved as the last value does
_FEWEST_KNOWN: Final = 96
_CALIBRATED_ON: Final = 288


class Regressed:
    """Fits a regression for each requested distance and quantile, and again after every `every` bins. `fits` fits a
    quantile. The bound is calibrated by the errors of the fitted quantile. Before there are enough rows, damped
    smoothing is used."""

    def __init__(
        self, name: str, fits: Callable[[float], Fit], *, bin_s: float, every: int, lags: Sequence[int] = LAGS
    ) -> None:
        self.name = name
        self._fits = fits
        self._every = every
        self._past = Past(bin_s, lags)
        self._young = Calibrated("damped", DampedSmoothing)
        self._fitted: dict[tuple[int, float], _Fitted] = {}

    def observe(self, value: float) -> None:
        self._young.observe(value)
        if self._past.add(value):
            for fitted in self._fitted.values():
                fitted.take(self._past, -1)

    def expected(self, steps: int) -> float:
        """Return the median."""
        found = self._at(steps, 0.5)
        return self._young.expected(steps) if found is None else found.quantile

    def upper(self, steps: int, quantile: float) -> float:
        found = self._at(steps, quantile)
        return self._young.upper(steps, quantile) if found is None else found.bound.upper

    def _at(self, steps: int, quantile: float) -> "_Fitted | None":
        if len(self._past.rows) < _FEWEST_ROWS + steps:
            return None
        if (steps, quantile) not in self._fitted:
            self._fitted[steps, quantile] = _Fitted(self._fits(quantile), steps, quantile, self._every, self._past)
        return self._fitted[steps, quantile]


class _Fitted:
    """The current fit of one quantile at one distance, and its bound. It begins with the last third of the past, so the
    bound's first errors come from fits that did not know these bins."""

    def __init__(self, fit: Fit, steps: int, quantile: float, every: int, past: Past) -> None:
        self._fit = fit
        self._steps = steps
        self._every = every
        self._age = every
        self._predict: Predict = lambda _row: 0.0
        self.bound = UpperBound(steps, quantile, headroom=0.0)
        self.quantile = nan
        num_rows = len(past.rows)
        for at in range(num_rows - min(_CALIBRATED_ON, num_rows // 3), num_rows):
            self.take(past, at)

    def take(self, past: Past, at: int) -> None:
        """Learn from the bin `at`, and forecast the one `steps` later."""
        self.bound.settle(past.values[at])
        if self._age >= self._every:
            self._refit(past, at % len(past.rows) + 1)
            self._age = 0
        self._age += 1
        self.quantile = past.value_of(self._predict(past.rows[at]), at)
        self.bound.promise(self.quantile)

    def _refit(self, past: Past, end: int) -> None:
        """Fit to the rows whose growth was known at the end of the bin before `end`."""
        growths = past.targets(self._steps)[: end - self._steps]
        known = ~np.isnan(growths)
        if known.sum() >= _FEWEST_KNOWN:
            self._predict = self._fit(np.array(past.rows)[: end - self._steps][known], growths[known])
