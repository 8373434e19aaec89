"""Find how much each worker may be asked so that the goal is kept in the mean of a day. Pure.

A pool has whole workers and shrinks late, so it answers more than the goal for most of a day, and may answer less at
its peak. How much less is computed from the demand of the last day alone. The pool's size is no input: a decision has
no effect on the next one, and constant demand always gives the same result.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

_BIN_MS: Final = 600_000.0
_BINS: Final = 144  # a day
_FEWEST: Final = 36  # six hours
_KEPT: Final = 6  # bins for which a worker stays after it was needed: the waits before a shrink
_MARGIN: Final = 0.002  # more than the goal: bursts within a bin are not simulated
_HALVINGS: Final = 7


@dataclass(slots=True)
class Aim:
    """The mean demand of each ten minutes of the last day, in machine seconds a second."""

    _bins: deque[float] = field(default_factory=lambda: deque(maxlen=_BINS))
    _bin: int | None = None
    _sum: float = 0.0
    _num: int = 0

    def add(self, now_ms: float, asked: float) -> bool:
        """Add the demand of a moment; return whether ten minutes have ended."""
        number = int(now_ms // _BIN_MS)
        ended = self._bin is not None and number != self._bin
        if ended:
            self._bins.append(self._sum / self._num)
        if number != self._bin:
            self._bin, self._sum, self._num = number, 0.0, 0
        self._sum += asked
        self._num += 1
        return ended

    def load(
        self, share: Callable[[float], float], goal: float, low: float, high: float, most: int, spare: float
    ) -> float:
        """Return the largest load of a worker between `low` and `high` at which the last day would have kept the goal.

        Args:
            share: the share that a worker answers in time, by its load.
            goal: the share to be answered in the mean of the day.
            low: the load at which a worker keeps the goal by itself; the result before six hours are known.
            high: the load that a worker may be asked at a moment.
            most: the most workers.
            spare: the share of its load that each worker left by a shrink has to spare.
        """
        if len(self._bins) < _FEWEST or not self._keeps(low, share, goal, most, spare):
            return low
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self._keeps(middle, share, goal, most, spare) else (low, middle)
        return low

    def _keeps(self, load: float, share: Callable[[float], float], goal: float, most: int, spare: float) -> bool:
        def sizes(load: float) -> list[int]:
            return [min(max(1, math.ceil(asked / load - 1e-9)), max(most, 1)) for asked in self._bins]

        needed, left = sizes(load), sizes(load * (1 - spare))
        in_time, size = 0.0, needed[0]
        for number, asked in enumerate(self._bins):
            recent = slice(max(0, number - _KEPT), number + 1)
            size = max(*needed[recent], needed[number], min(size, max(left[recent])))
            in_time += asked * share(asked / size)
        return in_time >= min(goal + _MARGIN, 1.0) * sum(self._bins)
