"""Compare two samples: decide whether one is larger, and by how much, with a confidence interval. Pure.

Latencies of neighbouring requests depend on each other, so independent draws would give too narrow intervals. Therefore
blocks of neighbours are drawn (circular block bootstrap; Politis and Romano, 1992).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

Verdict = Literal["regression", "improvement", "no difference"]
Floats = NDArray[np.float64]
# Computes a statistic of each row.
Statistic = Callable[[Floats], Floats]

_DRAWS: Final = 1_000
_DRAWN_AT_ONCE: Final = 2_000_000
# Five figures are compared at the same time, which leaves 95 % for all of them together (Bonferroni).
_CONFIDENCE: Final = 0.99


@dataclass(frozen=True, slots=True)
class Ratio:
    """The statistic `b` divided by `a`. With 99 % confidence the ratio is between `low` and `high`."""

    a: float
    b: float
    value: float
    low: float
    high: float

    def verdict(self, *, more_is_better: bool, tolerance: float) -> Verdict:
        """Return the verdict. A difference counts if it exceeds `tolerance` (0.05: five percent) and is significant."""
        if abs(self.value - 1) <= tolerance or self.low <= 1 <= self.high:
            return "no difference"
        return "improvement" if (self.value > 1) == more_is_better else "regression"


def quantile_of(share: float) -> Statistic:
    return lambda rows: np.quantile(rows, share, axis=1, method="inverted_cdf")


def mean_of(rows: Floats) -> Floats:
    means: Floats = rows.mean(axis=1)
    return means


def ratio(a: Sequence[float], b: Sequence[float], statistic: Statistic, *, seed: int = 0) -> Ratio | None:
    """Return the ratio of the two samples' statistics; None if a sample is empty or `a`'s statistic is 0. The samples
    are in the order of their requests."""
    if not a or not b:
        return None
    before, after = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    of_a, of_b = float(statistic(before[None, :])[0]), float(statistic(after[None, :])[0])
    if of_a == 0:
        return None
    random = np.random.default_rng(seed)
    drawn_a, drawn_b = _drawn(before, statistic, random), _drawn(after, statistic, random)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = drawn_b / drawn_a
    ratios = ratios[np.isfinite(ratios)]
    low, high = np.quantile(ratios, [(1 - _CONFIDENCE) / 2, (1 + _CONFIDENCE) / 2]) if len(ratios) else (0.0, math.inf)
    return Ratio(of_a, of_b, of_b / of_a, float(low), float(high))


def _drawn(sample: Floats, statistic: Statistic, random: np.random.Generator) -> Floats:
    """Return the statistic of a thousand samples drawn from this one."""
    length = max(1, round(len(sample) ** (1 / 3)))
    blocks = math.ceil(len(sample) / length)
    at_once = max(1, _DRAWN_AT_ONCE // len(sample))
    parts = []
    for first in range(0, _DRAWS, at_once):
        count = min(at_once, _DRAWS - first)
        starts = random.integers(0, len(sample), size=(count, blocks, 1))
        places = (starts + np.arange(length)).reshape(count, -1)[:, : len(sample)] % len(sample)
        parts.append(statistic(sample[places]))
    drawn: Floats = np.concatenate(parts)
    return drawn
