"""The features that a regression sees of a series' past: differences of logarithms, so that the scale drops out.
Pure."""

from collections import deque
from math import isnan, pi
from typing import Final

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

KEPT: Final = 4_320  # bins: 30 days of ten minutes, 3 days of one
_LAGS: Final = np.array([1, 2, 3, 6, 12])
_HIGHEST_OF: Final = (3, 6, 18, 36)
_MEAN_OF: Final = (6, 18, 72, 144)
_CHANGES_OF: Final = (6, 24, 144)
_WINDOW: Final = 145
_FLOOR: Final = 0.02  # of the usual value is added before the logarithm: zeros are values


class Past:
    """The values so far, and the rows that regressions are fitted to: one a bin, of what was known at its end."""

    def __init__(self, bin_s: float) -> None:
        self._bin_s = bin_s
        self._held: deque[float] = deque(maxlen=_WINDOW)
        self._sum = 0.0
        self._num_values = 0
        self._num_bins = 0
        self.values: deque[float] = deque(maxlen=KEPT)
        self.rows: deque[Vector] = deque(maxlen=KEPT)
        self.bases: deque[tuple[float, float]] = deque(maxlen=KEPT)
        """Of each row the last value and the floor that was added to it."""

    def add(self, value: float) -> bool:
        """Take the next bin. Return whether it has a row: not before the first value that is more than 0."""
        self._num_bins += 1
        if not isnan(value):
            self._sum += value
            self._num_values += 1
            self._held.append(value)
        elif self._held:
            self._held.append(self._held[-1])
        if self._sum == 0.0:
            return False
        floor = _FLOOR * self._sum / self._num_values
        self.values.append(value)
        self.bases.append((self._held[-1], floor))
        self.rows.append(self._row(floor))
        return True

    def targets(self, steps: int) -> Vector:
        """Return the logarithm of each row's growth until `steps` bins later; NaN if unknown."""
        later = np.full(len(self.values), np.nan)
        later[: len(later) - steps] = np.array(self.values)[steps:]
        last, floor = np.array(self.bases).T
        growths: Vector = np.log((later + floor) / (last + floor))
        return growths

    def value_of(self, growth: float, at: int) -> float:
        """Return the value that the one at `at` becomes by a growth as in `targets`."""
        last, floor = self.bases[at]
        return max(float(np.exp(np.clip(growth, -3.0, 3.0))) * (last + floor) - floor, 0.0)

    def _row(self, floor: float) -> Vector:
        logs = np.log(np.array(self._held) + floor)[::-1]
        logs -= logs[0]
        changes = np.abs(np.diff(logs)) if len(logs) > 1 else np.zeros(1)
        lags = logs[np.minimum(_LAGS, len(logs) - 1)]
        highest = [logs[:width].max() for width in _HIGHEST_OF]
        means = [logs[:width].mean() for width in _MEAN_OF]
        moved = [changes[:width].mean() for width in _CHANGES_OF]
        second = self._num_bins * self._bin_s
        angles = 2 * pi * second / np.array([3_600, 1_800, 1_200, 86_400, 43_200])
        return np.concatenate([[1.0], lags, highest, means, moved, np.sin(angles), np.cos(angles)])
