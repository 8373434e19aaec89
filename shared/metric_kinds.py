"""prometheus_client's kinds of metric, quick where a request passes: a child is one look-up once it is there, and an
observation finds its bucket by halves. What is exposed is theirs."""

from bisect import bisect_left
from typing import Any, Self

import prometheus_client


class Counter(prometheus_client.Counter):
    def labels(self, *values: object, **named: object) -> Self:
        child = _known(self, values, named)
        return super().labels(*values, **named) if child is None else child


class Gauge(prometheus_client.Gauge):
    def labels(self, *values: object, **named: object) -> Self:
        child = _known(self, values, named)
        return super().labels(*values, **named) if child is None else child


class Histogram(prometheus_client.Histogram):
    def labels(self, *values: object, **named: object) -> Self:
        child = _known(self, values, named)
        return super().labels(*values, **named) if child is None else child

    def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:
        if exemplar is not None:
            super().observe(amount, exemplar)
            return
        self._sum.inc(amount)
        self._buckets[bisect_left(self._upper_bounds, amount)].inc(1)


def _known(metric: Any, values: tuple[object, ...], named: dict[str, object]) -> Any:
    """The child of these labels, where it is there already and they are strings, as its key is. A dictionary is read
    without its lock: another thread may add to it or take from it, and either was so at some moment."""
    return None if named else getattr(metric, "_metrics", {}).get(values)
