"""A ratio of what was measured in pairs, and how sure it is. Pure."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct

_DRAWS: Final = 4_000
_CONFIDENCE: Final = 0.95


class Interval(Struct, frozen=True, kw_only=True):
    """With 95 % confidence it lies from `low` to `high`."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} – {self.high:.3f})"


def paired(over: Sequence[float], under: Sequence[float], *, seed: int = 0) -> Interval:
    """The median of the pairs' ratios; its interval is from bootstrap samples of the pairs. Raises ValueError where
    there is no pair, or one without its other."""
    if len(over) != len(under) or not over:
        raise ValueError(f"{len(over)} values beside {len(under)} are no pairs")
    ratios = np.asarray(over, dtype=np.float64) / np.asarray(under, dtype=np.float64)
    places = np.random.default_rng(seed).integers(0, len(ratios), size=(_DRAWS, len(ratios)))
    drawn = np.median(ratios[places], axis=1)
    low, high = np.quantile(drawn, [(1 - _CONFIDENCE) / 2, (1 + _CONFIDENCE) / 2])
    return Interval(value=float(np.median(ratios)), low=float(low), high=float(high))
