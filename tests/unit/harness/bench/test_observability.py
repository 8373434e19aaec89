"""What metrics and traces cost is told of the same processes; and what is turned off counts nothing until it is on."""

import os
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.measure.interval import paired
from ops.measure.usage import process_cpu_s
from tests.bench.gateway.observability import VARIANTS, Turn, costs


def test_a_variant_is_compared_within_its_round_and_its_processes() -> None:
    """A machine that slows down between rounds changes no ratio."""
    measured = [
        Turn(variant=variant.name, answers_per_s=speed * share, cpu_ms=2.0 / speed / share)
        for speed in (500.0, 250.0, 400.0)
        for variant, share in zip(VARIANTS, (1.0, 0.99, 0.98, 0.5, 0.4), strict=True)
    ]
    found = {cost.variant: cost for cost in costs(measured)}
    assert list(found) == ["metrics", "metrics and traces", "metrics and every trace"]
    assert [round(cost.throughput.value, 6) for cost in found.values()] == [0.99, 0.98, 0.8]
    assert found["metrics and every trace"].cpu.value == pytest.approx(1.25)
    assert found["metrics"].cpu.low == pytest.approx(found["metrics"].cpu.high)


@settings(max_examples=30)
@given(st.lists(st.floats(0.5, 2), min_size=1, max_size=40), st.floats(0.9, 1.2))
def test_the_interval_holds_the_ratio_of_the_pairs(bare: list[float], ratio: float) -> None:
    """However the machine's speed goes, what is a tenth dearer in each pair is a tenth dearer."""
    found = paired([ratio * one for one in bare], bare)
    assert found.low <= found.value <= found.high
    assert [found.low, found.high] == pytest.approx([ratio, ratio])


@pytest.mark.parametrize(("over", "under"), [([], []), ([1.0], [1.0, 2.0])])
def test_what_is_no_pair_has_no_ratio(over: list[float], under: list[float]) -> None:
    with pytest.raises(ValueError, match="are no pairs"):
        paired(over, under)


def test_a_process_is_billed_for_what_it_computes() -> None:
    before_s, own_s = process_cpu_s(os.getpid()), time.process_time()
    sum(number * number for number in range(200_000))
    assert process_cpu_s(os.getpid()) - before_s == pytest.approx(time.process_time() - own_s, rel=0.1)


def test_what_is_switched_off_counts_nothing_and_counts_again_when_it_is_on() -> None:
    """Every kind of metric, with labels and without; timing still runs what it times; the tracer records nothing."""
    program = """
import os
from gateway.telemetry.tracer import Tracer
from tests.bench.gateway.switched import Switch, signal_of
from shared.telemetry import metrics
from shared.tracing.context import is_sampled
from shared.tracing.export import TraceExporter

tracer = Tracer(exporter=TraceExporter(spans_of=None, send=None, endpoint=""))
done = []

def use():
    metrics.accepted.labels("short").inc()
    metrics.inflight.set(7)
    metrics.publish.observe(1.0)
    with metrics.reply_time.time():
        done.append(1)
    return is_sampled(tracer.begin(None).traceparent)

def counted():
    page = metrics.exposition()[1].decode()
    return [line in page for line in (
        "replyline_gateway_inflight 7.0", "replyline_gateway_publish_seconds_count 1.0",
        "replyline_worker_publish_seconds_count 1.0", 'replyline_gateway_requests_total{bucket="short"} 1.0',
    )]

Switch(Tracer).listen()
traced = []
for mode in ("neither", "metrics"):
    os.kill(os.getpid(), signal_of(mode))
    traced.append(use())
    assert counted() == [mode == "metrics"] * 4, (mode, metrics.exposition()[1].decode())
os.kill(os.getpid(), signal_of("metrics and traces"))
assert traced + [use()] == [False, False, True]
assert len(done) == 3
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
