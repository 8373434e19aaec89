"""The quick kinds of metric expose what prometheus_client's own do, whatever is counted."""

import math

import prometheus_client
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from shared.telemetry import metric_kinds

BUCKETS = (-1.0, 0.0, 0.1, 0.25, 5.0)
LABELS = st.sampled_from(["short", "long", "", "1", 1, True, "True"])
AMOUNTS = st.sampled_from([*BUCKETS, math.inf, -math.inf]) | st.floats(-10, 10)
STEPS = st.lists(
    st.tuples(st.sampled_from(["count", "set", "observe", "bare", "remove", "clear"]), LABELS, AMOUNTS), max_size=30
)


def exposed(kinds: object, steps: list[tuple[str, object, float]]) -> bytes:
    registry = CollectorRegistry()
    counter = kinds.Counter("c_total", "", ["a", "b"], registry=registry)  # type: ignore[attr-defined]
    gauge = kinds.Gauge("g", "", ["a"], registry=registry)  # type: ignore[attr-defined]
    histogram = kinds.Histogram("h", "", ["a"], buckets=BUCKETS, registry=registry)  # type: ignore[attr-defined]
    bare = kinds.Histogram("bare", "", buckets=BUCKETS, registry=registry)  # type: ignore[attr-defined]
    for step, label, amount in steps:
        match step:
            case "count":
                counter.labels(label, "x").inc(abs(amount))
            case "set":
                gauge.labels(a=label).set(amount)
                gauge.labels(label).inc()
            case "observe":
                histogram.labels(label).observe(amount)
            case "bare":
                bare.observe(amount)
            case "remove":
                gauge.remove(label)
            case _:
                histogram.clear()
    page = generate_latest(registry)
    return b"\n".join(line for line in page.splitlines() if b"_created" not in line)


@settings(max_examples=100)
@given(STEPS)
def test_what_is_exposed_is_the_same(steps: list[tuple[str, object, float]]) -> None:
    """With labels of every type, removed and cleared between; at each bucket's edge."""
    assert exposed(metric_kinds, steps) == exposed(prometheus_client, steps)


def test_a_child_is_found_again_and_wrong_labels_are_refused() -> None:
    registry = CollectorRegistry()
    counter = metric_kinds.Counter("c_total", "", ["a"], registry=registry)
    assert counter.labels("x") is counter.labels("x") is counter.labels(a="x")
    with pytest.raises(ValueError, match="Incorrect label count"):
        counter.labels("x", "y")
    with pytest.raises(ValueError, match="No label names were set"):
        metric_kinds.Gauge("g", "", registry=registry).labels("x")


def test_what_cannot_be_counted_is_refused_as_prometheus_client_does() -> None:
    counter = metric_kinds.Counter("c_total", "", ["a"], registry=CollectorRegistry())
    counter.labels("x")
    for refused in (counter.inc, lambda: counter.labels("x").inc(-1), lambda: counter.labels("x", a="x")):
        with pytest.raises(ValueError, match=r"missing label values|non-negative|both \*args"):
            refused()
    assert counter.labels("x")._value.get() == 0
    counter.labels("x").inc(2, {"trace_id": "7"})
    assert counter.labels("x")._value.get() == 2
