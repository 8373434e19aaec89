"""The metrics of a process on `/metrics`, at one moment and over a period. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]

_NO_SERIES: Final[Mapping[Labels, float]] = {}


@dataclass(frozen=True, slots=True)
class Page:
    """Series by name and labels."""

    series: Mapping[str, Mapping[Labels, float]]

    def values(self, name: str, **labels: str) -> list[float]:
        """Return the values of the series that have these labels."""
        wanted = labels.items()
        return [value for found, value in self.series.get(name, _NO_SERIES).items() if wanted <= set(found)]

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of these series; 0 without series."""
        return sum(self.values(name, **labels))


def parse_page(text: str) -> Page:
    """Parse a page in Prometheus' text format. Raises `ValueError`."""
    series: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            series.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return Page(series)


@dataclass(frozen=True, slots=True)
class Window:
    """Two pages of one process, `seconds` apart. A counter that fell shows that the process was restarted."""

    before: Page
    after: Page
    seconds: float

    def now(self, name: str, **labels: str) -> float:
        return self.after.total(name, **labels)

    def lowest(self, name: str, **labels: str) -> float | None:
        """Return the lowest value; None if no series has these labels."""
        return min(self.after.values(name, **labels), default=None)

    def gain(self, name: str, **labels: str) -> float:
        before, after = self.before.total(name, **labels), self.after.total(name, **labels)
        return after - before if after >= before else after

    def rate(self, name: str, **labels: str) -> float:
        """Return the growth of these series per second."""
        return self.gain(name, **labels) / self.seconds

    def mean(self, histogram: str, **labels: str) -> float | None:
        """Return the mean of the values that a histogram observed in the window; None if there were none."""
        count = self.gain(f"{histogram}_count", **labels)
        return self.gain(f"{histogram}_sum", **labels) / count if count else None

    def quantile(self, histogram: str, q: float, **labels: str) -> float | None:
        """Return the upper bound of the bucket in which the quantile `q` lies, so never less than the quantile itself.
        It is infinite beyond the last bound, and None if nothing was observed."""
        count = self.gain(f"{histogram}_count", **labels)
        if not count:
            return None
        buckets = self.after.series.get(f"{histogram}_bucket", _NO_SERIES)
        bounds = sorted({dict(found)["le"] for found in buckets}, key=float)
        for bound in bounds:
            if self.gain(f"{histogram}_bucket", **labels, le=bound) >= q * count:
                return float(bound)
        return math.inf
