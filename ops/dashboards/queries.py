"""PromQL from declared metrics: a name or a label that does not exist cannot be written.

The functions answer the questions that a panel asks: how often, how long, how much.
"""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

Declared = Counter | Gauge | Histogram
# Grafana puts in at least four scrapes.
_WINDOW: Final = "[$__rate_interval]"


def name_of(metric: Declared) -> str:
    """As it is exposed, without `_bucket`, `_sum` and `_count`."""
    described = next(iter(metric.describe()))
    return described.name + ("_total" if described.type == "counter" else "")


def per_second(metric: Counter | Histogram, *by: str, where: str = "") -> str:
    """A counter's, or a histogram's observations'."""
    name = name_of(metric) + ("_count" if isinstance(metric, Histogram) else "")
    return f"{_sum(metric, by)}(rate({name}{_only(where)}{_WINDOW}))"


def share(metric: Counter, part: str, *by: str, of: str = "") -> str:
    """Of what the counter counted `of` something, by those labels, that which bears `part` too."""
    both = f"{of},{part}" if of else part
    return f"{per_second(metric, *by, where=both)} / {per_second(metric, *by, where=of)}"


def quantile(q: float, metric: Histogram, *by: str, where: str = "") -> str:
    rate = f"rate({name_of(metric)}_bucket{_only(where)}{_WINDOW})"
    return f"histogram_quantile({q}, {_sum(metric, by, 'le')}({rate}))"


def mean(metric: Histogram, *by: str) -> str:
    of = _sum(metric, by)
    return f"{of}(rate({name_of(metric)}_sum{_WINDOW})) / {of}(rate({name_of(metric)}_count{_WINDOW}))"


def busy(metric: Histogram, *by: str) -> str:
    """Seconds a second that go into it."""
    return f"{_sum(metric, by)}(rate({name_of(metric)}_sum{_WINDOW}))"


def total(metric: Gauge, *by: str, where: str = "") -> str:
    return f"{_sum(metric, by)}({name_of(metric)}{_only(where)})"


def highest(metric: Gauge, *by: str, where: str = "") -> str:
    return f"max {_by(metric, by)}({name_of(metric)}{_only(where)})"


def lowest(metric: Gauge, *by: str, where: str = "") -> str:
    return f"min {_by(metric, by)}({name_of(metric)}{_only(where)})"


# The labels that Prometheus gives to all that it scrapes.
_SCRAPED: Final = ("job", "instance")


def _sum(metric: Declared, by: tuple[str, ...], *more: str) -> str:
    return f"sum {_by(metric, by, *more)}"


def _by(metric: Declared, by: tuple[str, ...], *more: str) -> str:
    """Raises `ValueError` for a label that the metric does not have."""
    unknown = set(by) - set(metric._labelnames) - set(_SCRAPED)  # noqa: SLF001 - there is no public name for it
    if unknown:
        raise ValueError(f"{name_of(metric)} has no label {', '.join(sorted(unknown))}")
    labels = (*by, *more)
    return f"by ({', '.join(labels)}) " if labels else ""


def _only(where: str) -> str:
    return f"{{{where}}}" if where else ""
