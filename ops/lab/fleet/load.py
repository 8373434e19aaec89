"""Use a recorded series as the load of a fleet: the requests a second at each tick. Pure, by a seed.

The series is scaled so that its busiest minute is the full load of a given fleet: customers are left out or multiplied,
the times of day stay. The rate changes linearly between the middles of long bins, and across bins that were not
recorded. Within a bin the rate varies from tick to tick by the recorded burstiness, reduced if only a share of the
customers is kept. Arrivals at a rate are a Poisson process.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

_MINUTE_S: Final = 60.0
_LONG_BIN_S: Final = 300.0
# The variance of a count divided by its mean. ServeGen has each client's rate r and variation c in each bin; for all
# clients it is Σ r·c² / Σ r, and this is the median over the bins. Azure's bins of ten seconds already show the bursts.
DISPERSION: Final = {"m-small": 11.2, "m-mid": 63.3, "m-large": 8.2}

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandTrace:
    """Requests a second, one value a tick."""

    name: str
    tick_ms: float
    per_s: Floats

    @property
    def span_ms(self) -> float:
        return self.tick_ms * len(self.per_s)

    def part(self, start_ms: float, span_ms: float) -> "DemandTrace":
        """Return the part of the load from `start_ms` on, `span_ms` long."""
        start, end = round(start_ms / self.tick_ms), round((start_ms + span_ms) / self.tick_ms)
        return DemandTrace(name=self.name, tick_ms=self.tick_ms, per_s=self.per_s[start:end])


def scaled(
    name: str, values: Sequence[float | None], bin_s: float, *, peak_per_s: float, tick_s: float, seed: int
) -> DemandTrace:
    """Return a series as a load whose busiest minute has a rate of `peak_per_s`."""
    bins = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    places, known = np.arange(bins.size) + 0.5, ~np.isnan(bins)
    ends = (np.arange(round(bins.size * bin_s / tick_s)) + 0.5) * tick_s / bin_s
    if bin_s >= _LONG_BIN_S:
        ticks = np.interp(ends, places[known], bins[known])
    else:
        ticks = bins[np.floor(ends).astype(np.int64)]
    width = max(1, round(_MINUTE_S / tick_s))
    factor = peak_per_s / float(np.convolve(ticks, np.ones(width) / width, "valid").max())
    per_s = ticks * factor
    spare = min(factor, 1.0) * (DISPERSION.get(name, 1.0) - 1.0)
    if spare > 0:  # a gamma rate with this variance, added to that of the Poisson process
        shape = np.maximum(per_s * tick_s / spare, 1e-9)
        per_s = np.random.default_rng(seed).gamma(shape) * spare / tick_s
    return DemandTrace(name=name, tick_ms=tick_s * 1_000, per_s=per_s)


def shares(num_partitions: int, workers: int) -> tuple[float, ...]:
    """Return each worker's share of all conversations. A worker has whole partitions."""
    each, more = divmod(num_partitions, workers)
    return tuple((each + (number < more)) / num_partitions for number in range(workers))
