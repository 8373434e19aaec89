"""Which matrices to leave out of 8 bits: the fewest of the worst, in a bounded number of evaluations. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Trial:
    """Agreement with the `excluded` worst left out; `met` is whether it reached the aim."""

    excluded: int
    agreement: float
    met: bool


def fewest_worst(
    ranked: Sequence[T], agreement: Callable[[Sequence[T]], float], *, aim: float, most_evaluations: int
) -> list[Trial]:
    """Leave out the first of `ranked` (the worst first), twice as many each time until the `aim` is met; then halve
    between the last two. Returns the trials in order; the answer is `chosen` of them.

    `agreement` of those left out is taken to grow with their number, which it need not quite do.
    """
    trials: list[Trial] = []

    def met(count: int) -> bool:
        found = agreement(ranked[:count])
        trials.append(Trial(count, found, found >= aim))
        return found >= aim

    least, most = -1, 0
    while len(trials) < most_evaluations and not met(most):
        if most == len(ranked):
            return trials
        least, most = most, min(len(ranked), max(1, 2 * most))
    while len(trials) < most_evaluations and most - least > 1:
        middle = (least + most) // 2
        if met(middle):
            most = middle
        else:
            least = middle
    return trials


def chosen(trials: Sequence[Trial]) -> Trial:
    """The fewest excluded of those that met the aim, else the best."""
    met = [trial for trial in trials if trial.met]
    if met:
        return min(met, key=lambda trial: trial.excluded)
    return max(trials, key=lambda trial: (trial.agreement, -trial.excluded))
