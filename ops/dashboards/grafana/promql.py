"""Which metrics an expression asks for, and which a process exposes."""

import re
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry

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
    """The metrics of a PromQL expression: what is a name and neither a function, a keyword, a label nor a duration."""
    bare = _LABELS.sub(" ", _TEXT.sub(" ", expr))
    return {name for name in _NAME.findall(bare) if name.lower() not in _WORDS | _AGGREGATIONS}


def exposed_names(registry: CollectorRegistry = REGISTRY) -> set[str]:
    """The sample names that `/metrics` may show, labelled ones without a child yet too."""
    return {family.name + suffix for family in registry.collect() for suffix in _SUFFIXES.get(family.type, ("",))}
