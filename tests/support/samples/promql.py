"""The metrics that an expression asks for, and those that a process exposes."""

import re
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

_TEXT: Final = re.compile(r'"(?:\\.|[^"\\])*"')
_LABELS: Final = re.compile(r"\{[^}]*\}|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)|\[[^\]]*\]")
_NAME: Final = re.compile(r"(?<![\w:.$])[A-Za-z_:][\w:]*\b(?!\s*\()")
_WORDS: Final = frozenset({"and", "or", "unless", "offset", "bool", "group_left", "group_right"})
_AGGREGATIONS: Final = frozenset({"sum", "avg", "min", "max", "count", "group", "topk", "bottomk", "quantile"})
# What Prometheus itself makes of scraping and of alerts.
OWN: Final = frozenset({"up", "ALERTS"})
_SUFFIXES: Final = {
    "counter": ("_total", "_created"),
    "histogram": ("_bucket", "_sum", "_count", "_created"),
    "summary": ("", "_sum", "_count", "_created"),
    "info": ("_info",),
}


def metric_names(expr: str) -> set[str]:
    """Return the metrics of a PromQL expression: names that are neither a function, a keyword, a label nor a
    duration."""
    bare = _LABELS.sub(" ", _TEXT.sub(" ", expr))
    return {name for name in _NAME.findall(bare) if name.lower() not in _WORDS | _AGGREGATIONS}


def exposed_names(registry: CollectorRegistry = REGISTRY) -> set[str]:
    """The sample names that `/metrics` may show, labelled ones without a child yet too."""
    return {family.name + suffix for family in registry.collect() for suffix in _SUFFIXES.get(family.type, ("",))}


def name_of(metric: Counter | Gauge | Histogram) -> str:
    """Return its name as it is exposed, without `_bucket`, `_sum` and `_count`."""
    described = next(iter(metric.describe()))
    return described.name + ("_total" if described.type == "counter" else "")


def labels_of(expr: str) -> set[str]:
    """Return the labels that a PromQL expression selects or groups by."""
    grouped = re.findall(r"\b(?:by|on|ignoring|group_left)\s*\(([^)]*)\)", expr)
    selected = re.findall(r"(\w+)\s*(?:=~|!=|!~|=)\s*\"", expr)
    return {label.strip() for part in grouped for label in part.split(",") if label.strip()} | set(selected)


def known_labels(names: set[str], registry: CollectorRegistry = REGISTRY) -> set[str]:
    """Return the labels that any of these metrics has, and those that Prometheus adds."""
    found = {"job", "instance", "le"}
    for collector in list(registry._collector_to_names):
        if names & set(registry._collector_to_names[collector]):
            found |= set(getattr(collector, "_labelnames", ()))
    return found
