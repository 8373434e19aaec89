"""A trace store outage costs the traces of that time and one log line, nothing else."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from gateway.telemetry.trace_spans import KeptTrace, spans_of
from shared.settings.telemetry import TracingSettings
from shared.telemetry import metrics
from shared.tracing.export import MOST_WAITING, TraceExporter, open_exporter
from shared.tracing.spans import Trace
from tests.support.servers.trace_store import trace_store
from tests.unit.shared.tracing.test_spans import answered, check_tree, request_trace, whole


@dataclass
class Store:
    """Accepts traces while `up`."""

    up: bool = True
    taken: list[Trace] = field(default_factory=list)

    def __call__(self, traces: Sequence[Trace]) -> bool:
        if self.up:
            self.taken += traces
        return self.up


def exporter_to(store: Store) -> TraceExporter[int]:
    """The numbers sent are each a trace of that id."""
    return TraceExporter(spans_of=lambda number: Trace(number, []), send=store, endpoint="http://store:4318")


def dropped(why: str) -> float:
    return metrics.traces_dropped.labels(why)._value.get()


def test_traces_arrive_in_order() -> None:
    store = Store()
    exporter = exporter_to(store)
    for number in range(200):
        exporter.put(number)
    exporter.send_all()
    assert [trace.trace_id for trace in store.taken] == list(range(200))


def test_a_store_outage_is_logged_once_and_its_end_once() -> None:
    store = Store(up=False)
    exporter = exporter_to(store)
    before = dropped("store")
    with capture_logs() as lines:
        for number in range(300):
            exporter.put(number)
            exporter.send_all()
        store.up = True
        for number in range(3):
            exporter.put(number)
            exporter.send_all()
    assert [line["event"] for line in lines] == ["unavailable", "available"]
    assert dropped("store") - before == 300
    assert len(store.taken) == 3


def test_traces_beyond_the_buffer_are_dropped_and_counted() -> None:
    """A caller that hands over a trace never waits."""
    store = Store()
    exporter = exporter_to(store)
    before = dropped("full")
    for number in range(MOST_WAITING + 5):
        exporter.put(number)
    assert dropped("full") - before == 5
    exporter.send_all()
    assert len(store.taken) == MOST_WAITING


def test_a_fault_in_one_batch_ends_only_that_batch() -> None:
    store = Store()
    exporter: TraceExporter[int] = TraceExporter(
        spans_of=lambda number: Trace(1 // number, []), send=store, endpoint="http://store:4318"
    )
    before = dropped("internal")
    with capture_logs() as lines:
        exporter.put(0)
        exporter.send_all()
    exporter.put(1)
    exporter.send_all()
    assert [line["event"] for line in lines] == ["traces_failed"]
    assert dropped("internal") - before == 1
    assert len(store.taken) == 1


def test_stopping_sends_the_buffer_and_gives_up_on_a_store_that_is_away() -> None:
    for up in (True, False):
        store = Store(up=up)
        exporter = exporter_to(store)
        exporter.start()
        for number in range(500):
            exporter.put(number)
        with capture_logs():
            exporter.stop()
        assert not any(thread.name == "traces" for thread in threading.enumerate())
        assert len(store.taken) == (500 if up else 0)


def test_without_a_store_or_its_packages_there_is_no_exporter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The packages are optional: a missing one is logged in one line, and requests are served."""
    assert open_exporter(TracingSettings(), spans_of) is None
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.sdk.resources", None)
    monkeypatch.delitem(__import__("sys").modules, "shared.tracing.otlp", raising=False)
    with capture_logs() as lines:
        assert open_exporter(TracingSettings(endpoint="http://store:4318"), spans_of) is None
    (line,) = lines
    assert line["event"] == "tracing_off"
    assert line["action"].endswith("pip install 'replyline[tracing]'")


@pytest.mark.parametrize("status", [200, 400])
def test_spans_are_exported_with_their_process(status: int) -> None:
    with trace_store() as store:
        store.status = status
        settings = TracingSettings(endpoint=store.endpoint)
        exporter = open_exporter(settings, spans_of)
        assert exporter is not None
        facts: KeptTrace = answered(request_trace(), worker=whole())
        exporter.put(facts)
        with capture_logs() as lines:
            exporter.stop()
        if status == 400:
            assert [line["event"] for line in lines] == ["unavailable"]
            return
        trace = spans_of(facts)
        stored = {span.span_id: span for span in store.spans}
        assert stored.keys() == {f"{span.span_id:016x}" for span in trace.spans}
        for span in check_tree(trace).values():
            there = stored[f"{span.span_id:016x}"]
            assert there.name == span.name
            assert (there.start_ns, there.end_ns) == (round(span.start_unix_ms * 1e6), round(span.end_unix_ms * 1e6))
            assert there.service == f"replyline-{span.process.role}"
            assert there.instance == span.process.instance_id
            assert there.schema_url == "https://opentelemetry.io/schemas/1.37.0"


@pytest.mark.parametrize(
    ("given", "sent_to"),
    [
        ("http://tempo:4318", "http://tempo:4318/v1/traces"),
        ("http://tempo:4318/", "http://tempo:4318/v1/traces"),
        ("https://[::1]:4318", "https://[::1]:4318/v1/traces"),
        ("https://otlp.example/otlp/v1/traces", "https://otlp.example/otlp/v1/traces"),
    ],
)
def test_an_address_without_a_path_gets_the_otlp_path(given: str, sent_to: str) -> None:
    assert TracingSettings(endpoint=given).endpoint == sent_to
