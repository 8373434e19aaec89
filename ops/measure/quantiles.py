"""Percentiles. Pure."""

import math
from collections.abc import Iterable, Sequence

from msgspec import Struct


class Quantiles(Struct, frozen=True, kw_only=True):
    """Quantiles of one quantity; None if nothing was measured."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that is not below a `share` of all values (nearest rank). `ordered` is ascending."""
    rank = max(1, math.ceil(share * len(ordered)))
    return ordered[rank - 1]


def quantiles(values: Iterable[float], *, digits: int = 3) -> Quantiles:
    ordered = sorted(values)
    if not ordered:
        return Quantiles()
    p50, p95, p99 = (round(percentile(ordered, share), digits) for share in (0.50, 0.95, 0.99))
    return Quantiles(p50=p50, p95=p95, p99=p99)
