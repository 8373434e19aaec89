"""Estimate by batch means how far the difference between both sides' shares of lost questions may be chance. Pure.

Questions that wait in one queue are lost together, so that their number varies by more than if each were lost by
itself: in simulation at 0.8 of capacity its variance is five times as large. Batches that last longer than a queue vary
independently (Law, "Simulation Modeling and Analysis", 2015, 9.5.3). They grow with the number of questions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ops.lifecycle.rollout.tally import Side

_MOST_BATCHES: Final = 32


@dataclass(slots=True)
class Batch:
    """How many questions of each side came, and how many of them it lost."""

    canary: int = 0
    canary_lost: int = 0
    control: int = 0
    control_lost: int = 0

    def add(self, side: Side, *, is_lost: bool) -> None:
        """Count a question."""
        if side == "canary":
            self.canary += 1
            self.canary_lost += is_lost
        else:
            self.control += 1
            self.control_lost += is_lost


def _merged(one: Batch, other: Batch) -> Batch:
    return Batch(
        one.canary + other.canary,
        one.canary_lost + other.canary_lost,
        one.control + other.control,
        one.control_lost + other.control_lost,
    )


@dataclass(slots=True)
class Batches:
    """Questions in their order, in at most 32 batches of the same size, of which the last grows."""

    _size: int = 1
    _batches: list[Batch] = field(default_factory=lambda: [Batch()])

    def add(self, side: Side, *, is_lost: bool) -> None:
        """Count a question in the last batch. Once there are too many batches, merge each two."""
        last = self._batches[-1]
        last.add(side, is_lost=is_lost)
        if last.canary + last.control < self._size:
            return
        if len(self._batches) == _MOST_BATCHES:
            pairs = zip(self._batches[::2], self._batches[1::2], strict=True)
            self._batches = [_merged(one, other) for one, other in pairs]
            self._size *= 2
        self._batches.append(Batch())

    def all(self) -> Sequence[Batch]:
        return self._batches


def variance_of(batches: Sequence[Batch]) -> float:
    """Return the variance of the canary's share of lost questions less the control's; 0 without questions of both."""
    canary, control = sum(each.canary for each in batches), sum(each.control for each in batches)
    if not (canary and control):
        return 0.0
    share = sum(each.canary_lost for each in batches) / canary
    controls = sum(each.control_lost for each in batches) / control
    beyond = [
        (each.canary_lost - share * each.canary) / canary - (each.control_lost - controls * each.control) / control
        for each in batches
    ]
    return math.fsum(more * more for more in beyond) * len(beyond) / max(1, len(beyond) - 1)
