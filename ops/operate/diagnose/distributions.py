"""Properties of a histogram in `/metrics`: mean, deviation, two peaks, and a shift from before. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ops.operate.diagnose.pages import Page, Window

_LEAST_SHARE: Final = 1e-4  # assumed share of a bucket that is empty on one side
_HUMP: Final = 0.25
_VALLEY: Final = 0.2


@dataclass(frozen=True, slots=True)
class Distribution:
    """Counts of observed values by bucket. `bounds` are the upper bounds of the buckets, the last of which is infinite;
    `total` is the sum of all values."""

    bounds: Sequence[float]
    counts: Sequence[float]
    total: float

    @classmethod
    def before(cls, window: Window, histogram: str) -> "Distribution":
        """Return the values observed from the process's start to the window."""
        return cls._of(*_reading(window.before, histogram))

    @classmethod
    def meanwhile(cls, window: Window, histogram: str) -> "Distribution":
        """Return the values observed in the window, or all values if the process was restarted in it."""
        first, last = _reading(window.before, histogram), _reading(window.after, histogram)
        if sum(last[0].values()) < sum(first[0].values()):
            return cls._of(*last)
        return cls._of(
            {bound: count - first[0].get(bound, 0.0) for bound, count in last[0].items()}, last[1] - first[1]
        )

    @classmethod
    def _of(cls, cumulative: dict[float, float], total: float) -> "Distribution":
        bounds = sorted(cumulative)
        upto = [cumulative[bound] for bound in bounds]
        return cls(bounds, [each - less for each, less in zip(upto, [0.0, *upto], strict=False)], total)

    @property
    def count(self) -> float:
        return sum(self.counts)

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    @property
    def deviation(self) -> float:
        """Return the standard deviation, with every value assumed to be at the middle of its bucket."""
        if not self.count:
            return 0.0
        middles = [(low + high) / 2 for low, high in zip([0.0, *self.bounds], self._ends, strict=False)]
        mean = sum(map(math.prod, zip(middles, self.counts, strict=True))) / self.count
        spread = sum(count * (middle - mean) ** 2 for middle, count in zip(middles, self.counts, strict=True))
        return math.sqrt(spread / self.count)

    @property
    def _ends(self) -> list[float]:
        """Return the upper bounds, with twice the lower bound for the last bucket."""
        last = self.bounds[-2] if len(self.bounds) > 1 else 1.0
        return [2 * last if math.isinf(bound) else bound for bound in self.bounds]

    def share_up_to(self, limit: float) -> float:
        """Return the share of the values in the buckets that end at or below `limit`."""
        within = sum(count for bound, count in zip(self.bounds, self.counts, strict=True) if bound <= limit)
        return within / self.count if self.count else 0.0


def stability_index(then: Distribution, now: Distribution) -> float:
    """Return the population stability index, Σ (now − then) · ln(now / then) over the shares of the buckets. 0 means
    the same distribution; more than 0.25 commonly means a different one (Yurdakul, "Statistical Properties of
    Population Stability Index", 2018)."""
    index = 0.0
    for was, is_ in zip(then.counts, now.counts, strict=True):
        a, b = max(was / then.count, _LEAST_SHARE), max(is_ / now.count, _LEAST_SHARE)
        index += (b - a) * math.log(b / a)
    return index


def middle_is_empty(few: float, many: float) -> bool:
    """Return whether the shares at both ends are peaks with a gap between them."""
    return few >= _HUMP and many >= _HUMP and 1 - few - many <= _VALLEY


def _reading(page: Page, histogram: str) -> tuple[dict[float, float], float]:
    """Return the cumulative counts by bound, over all labels, and the sum of the values."""
    cumulative: dict[float, float] = {}
    for labels, value in page.series.get(f"{histogram}_bucket", {}).items():
        bound = float(dict(labels)["le"])
        cumulative[bound] = cumulative.get(bound, 0.0) + value
    return cumulative, page.total(f"{histogram}_sum")
