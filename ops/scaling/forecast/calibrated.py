"""A model of the expected value under a calibrated bound. Pure."""

from collections import deque
from collections.abc import Callable
from typing import Final

from ops.scaling.forecast.conformal import UpperBound
from ops.scaling.forecast.points import PointModel

_KEPT: Final = 2_880


class Calibrated:
    """A point model with an upper bound for each distance and quantile that it was asked for. A bound that is asked for
    the first time learns from the values that are kept."""

    def __init__(self, name: str, new_point: Callable[[], PointModel]) -> None:
        self.name = name
        self._new_point = new_point
        self._point = new_point()
        self._kept: deque[float] = deque(maxlen=_KEPT)
        self._bounds: dict[tuple[int, float], UpperBound] = {}

    def observe(self, value: float) -> None:
        self._kept.append(value)
        self._point.observe(value)
        for (steps, _), bound in self._bounds.items():
            bound.settle(value)
            bound.promise(self._point.expected(steps))

    def expected(self, steps: int) -> float:
        return self._point.expected(steps)

    def upper(self, steps: int, quantile: float) -> float:
        if (steps, quantile) not in self._bounds:
            self._bounds[steps, quantile] = self._learned(UpperBound(steps, quantile), steps)
        return self._bounds[steps, quantile].upper

    def _learned(self, bound: UpperBound, steps: int) -> UpperBound:
        point = self._new_point()
        for value in self._kept:
            point.observe(value)
            bound.settle(value)
            bound.promise(point.expected(steps))
        return bound
