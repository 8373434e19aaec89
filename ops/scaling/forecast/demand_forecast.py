"""Forecast an upper bound of the demand some bins ahead, by regression of the quantile itself. Pure."""

from functools import partial
from math import nan
from typing import Final, Protocol

import numpy as np

from ops.scaling.forecast.conformal import UpperBound
from ops.scaling.forecast.features import Past
from ops.scaling.forecast.regression import Predict, fit_quantile

_FEWEST_ROWS: Final = 720  # with fewer it leaves as much unserved as the last value does
_FEWEST_KNOWN: Final = 96
_CALIBRATED_ON: Final = 288
_REFIT_EVERY: Final = 12


class Forecast(Protocol):
    """A forecast of one series of bins, which learns from each bin as it ends."""

    def observe(self, value: float) -> None:
        """Add the next bin's value. NaN means that it was not recorded; nothing is learned from it."""

    def upper(self, steps: int, quantile: float) -> float:
        """Return the value that the bin `steps` after the last one exceeds with a probability of `1 - quantile`; NaN if
        that is not known."""


class DemandForecast:
    """Forecasts one series of bins of `bin_s` seconds. It gets each bin as it ends and is calibrated by the errors of
    its earlier forecasts. It fits a regression for each requested distance and quantile, and again every 12 bins."""

    def __init__(self, *, bin_s: float = 60.0) -> None:
        self._past = Past(bin_s)
        self._fitted: dict[tuple[int, float], _Fitted] = {}

    def observe(self, value: float) -> None:
        """Add the next bin's value. NaN means that it was not recorded; nothing is learned from it."""
        if self._past.add(value):
            for fitted in self._fitted.values():
                fitted.learn(self._past, -1)

    def upper(self, steps: int, quantile: float) -> float:
        """Return the value that the bin `steps` after the last one exceeds with a probability of `1 - quantile`; NaN
        before 720 bins are known."""
        if len(self._past.rows) < _FEWEST_ROWS + steps:
            return nan
        if (steps, quantile) not in self._fitted:
            self._fitted[steps, quantile] = _Fitted(steps, quantile, self._past)
        return self._fitted[steps, quantile].bound.upper


class _Fitted:
    """The current fit of one quantile at one distance, and its bound. It begins with the last third of the past, so the
    bound's first errors come from fits that did not know these bins."""

    def __init__(self, steps: int, quantile: float, past: Past) -> None:
        self._fit = partial(fit_quantile, quantile=quantile)
        self._steps = steps
        self._age = _REFIT_EVERY
        self._predict: Predict = lambda _row: 0.0
        self.bound = UpperBound(steps, quantile)
        num_rows = len(past.rows)
        for at in range(num_rows - min(_CALIBRATED_ON, num_rows // 3), num_rows):
            self.learn(past, at)

    def learn(self, past: Past, at: int) -> None:
        """Learn from the bin `at`, and forecast the one `steps` later."""
        self.bound.settle(past.values[at])
        if self._age >= _REFIT_EVERY:
            self._refit(past, at % len(past.rows) + 1)
            self._age = 0
        self._age += 1
        self.bound.promise(past.value_of(self._predict(past.rows[at]), at))

    def _refit(self, past: Past, end: int) -> None:
        """Fit to the rows whose growth was known at the end of the bin before `end`."""
        growths = past.targets(self._steps)[: end - self._steps]
        known = ~np.isnan(growths)
        if known.sum() >= _FEWEST_KNOWN:
            self._predict = self._fit(np.array(past.rows)[: end - self._steps][known], growths[known])
