"""PromQL from declared metrics: a name or a label that does not exist cannot be written.

The functions answer the questions that a panel asks: how often, how long, how much.
"""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from shared.telemetry import metrics

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


def none_or_per_second(metric: Counter, by: str) -> str:
    """What as a rule does not happen: a line at 0, whose label says "none", where `per_second` shows no data."""
    return f'{per_second(metric, by)} or label_replace(vector(0), "{by}", "none", "", "")'


def share(metric: Counter, part: str, *by: str, of: str = "") -> str:
    """Of what the counter counted `of` something, by those labels, that which bears `part` too: 0 where none does."""
    both, whole = f"{of},{part}" if of else part, per_second(metric, *by, where=of)
    return f"({per_second(metric, *by, where=both)} or 0 * {whole}) / {whole}"


def quantile(q: float, metric: Histogram, *by: str, where: str = "") -> str:
    rate = f"rate({name_of(metric)}_bucket{_only(where)}{_WINDOW})"
    return f"histogram_quantile({q}, {_sum(metric, by, 'le')}({rate}))"


def busy(metric: Histogram, *by: str) -> str:
    """Seconds a second that go into it."""
    return f"{_sum(metric, by)}(rate({name_of(metric)}_sum{_WINDOW}))"


def total(metric: Gauge, *by: str, where: str = "") -> str:
    return f"{_sum(metric, by)}({name_of(metric)}{_only(where)})"


def highest(metric: Gauge, *by: str, where: str = "") -> str:
    return f"max {_by(metric, by)}({name_of(metric)}{_only(where)})"


def lowest(metric: Gauge, *by: str, where: str = "") -> str:
    return f"min {_by(metric, by)}({name_of(metric)}{_only(where)})"


def by_model(metric: Counter, *by: str, where: str = "") -> str:
    """A worker's counter, by second and by what that worker computes with."""
    _by(metric, by)
    labels = ", ".join((*MODEL, *by))
    return f"sum by ({labels}) (rate({name_of(metric)}{_only(where)}{_WINDOW}) {_OF_MODEL})"


def quantile_by_model(q: float, metric: Histogram) -> str:
    rate = f"rate({name_of(metric)}_bucket{_WINDOW}) {_OF_MODEL}"
    return f"histogram_quantile({q}, sum by ({', '.join(MODEL)}, le) ({rate}))"


MODEL: Final = ("model", "revision", "release")
"""What is compared: workers of one model, revision and release are alike."""
_OF_MODEL: Final = f"* on (job, instance) group_left ({', '.join(MODEL)}) {name_of(metrics.model_info)}"
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
