"""prometheus_client's kinds of metric, quick where a request passes: a child is one look-up once it is there, counting
is one call, and an observation finds its bucket by halves. What is exposed is theirs, and so is what they refuse.

A child is found without its metric's lock where its labels are strings, as its key is: another thread may add to the
dictionary or take from it, and either was so at some moment. Only a metric with labels has that dictionary, and only
one that may be counted a value.
"""

from bisect import bisect_left
from typing import Any, Self

import prometheus_client
from prometheus_client.metrics import MetricWrapperBase


class _Labelled(MetricWrapperBase):
    _metrics: dict[Any, Any]

    def labels(self, *values: Any, **named: object) -> Self:
        if not named:
            try:
                found: Self = self._metrics[values]
            except (AttributeError, KeyError):
                pass  # it has none, or not yet
            else:
                return found
        return super().labels(*values, **named)


class Counter(_Labelled, prometheus_client.Counter):
    def inc(self, amount: float = 1, exemplar: dict[str, str] | None = None) -> None:
        if exemplar is None and amount >= 0:
            try:
                count = self._value.inc
            except AttributeError:
                pass
            else:
                count(amount)
                return
        super().inc(amount, exemplar)


class Gauge(_Labelled, prometheus_client.Gauge):
    pass


class Histogram(_Labelled, prometheus_client.Histogram):
    def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:
        if exemplar is not None:
            super().observe(amount, exemplar)
            return
        self._sum.inc(amount)
        self._buckets[bisect_left(self._upper_bounds, amount)].inc(1)
