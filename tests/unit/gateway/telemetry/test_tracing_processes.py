"""A worker sends its times if the trace is recorded; a gateway waits for them, for a limited time."""

from typing import Any

import msgspec
import pytest

from gateway.request.answer import AnswerState
from gateway.request.cursor import CursorKey
from gateway.request.entry import Adoption
from gateway.telemetry.trace_spans import KeptTrace, spans_of
from gateway.telemetry.tracer import Tracer
from shared.tracing.export import TraceExporter
from shared.tracing.spans import KeepRules
from shared.wire.messages import ReplyDone
from shared.wire.outcome import Timings
from shared.wire.session_key import SessionKey
from tests.support.builders.gateway import answer, done
from tests.unit.shared.tracing.test_export import Store
from tests.unit.shared.tracing.test_spans import NOW, TRACEPARENT, check_tree, entry_of, request_trace, worker_times
from tests.unit.workers.serving.test_worker import Bench
from workers.telemetry.tracer import Tracer as WorkerTracer

KEY = CursorKey(b"secret")
UNSAMPLED = TRACEPARENT[:-2] + "00"


def told(**fields: Any) -> ReplyDone:
    given = {"status": "incomplete", "reason": "deadline", "times": worker_times()}
    return done("", **(given | fields))


class AtGateway:
    """A tracer and its store; `sent` are the exported traces."""

    def __init__(self, rules: KeepRules | None = None) -> None:
        self.store = Store()
        self.exporter: TraceExporter[KeptTrace] = TraceExporter(
            spans_of=spans_of, send=self.store, endpoint="http://store:4318"
        )
        self.tracer = Tracer(rules=rules or KeepRules(), exporter=self.exporter, gateway_id="gw-0")

    def sent(self) -> list[set[str]]:
        self.exporter.send_all()
        return [set(check_tree(trace)) for trace in self.store.taken]


def cut(at: AtGateway, **fields: Any) -> Any:
    """An entry that was published, and that this gateway's own clock has ended."""
    trace = request_trace(sent_unix_ms=NOW + 1, acked_unix_ms=NOW + 2)
    entry = entry_of(trace, done_unix_ms=NOW + 15_000, **fields)
    timings = Timings(ttft_ms=100.0, total_ms=15_000.0)
    entry.answer.response = answer(entry.response_id, status="incomplete", reason="deadline", timings=timings)
    at.tracer.finish(entry, entry.answer.response)
    return entry


def test_a_missed_deadline_waits_for_the_workers_word() -> None:
    at = AtGateway()
    cut(at)
    assert at.sent() == []
    at.tracer.note_worker_end(None, told(), NOW + 15_040)
    (spans,) = at.sent()
    assert {"process chat.requests.short", "queue", "response.create"} <= spans


def test_a_silent_worker_is_waited_for_five_seconds() -> None:
    """Later traces stay."""
    at = AtGateway()
    cut(at)
    at.tracer.give_up(NOW + 15_000)
    assert at.sent() == []
    at.tracer.give_up(NOW + 15_001)
    (spans,) = at.sent()
    assert "process chat.requests.short" not in spans
    at.tracer.note_worker_end(None, told(), NOW + 15_040)
    assert len(at.sent()) == 1, "told twice"


def test_the_number_of_waiting_traces_is_bounded() -> None:
    at = AtGateway()
    for number in range(2_003):
        cut(at, response_id=f"resp_{number:028x}")
    assert len(at.sent()) == 3


@pytest.mark.parametrize(("word", "sent"), [(told(times=None), 1), (told(origin="gateway"), 0)])
def test_a_workers_end_without_times_ends_the_wait_and_another_gateways_does_not(word: ReplyDone, sent: int) -> None:
    """An answer that was repeated, or a worker of before."""
    at = AtGateway()
    cut(at)
    at.tracer.note_worker_end(None, word, NOW + 15_040)
    assert len(at.sent()) == sent


def test_the_first_worker_that_ends_it_counts() -> None:
    """A request may be answered by two, after a rebalance."""
    at = AtGateway()
    entry = entry_of(request_trace(sent_unix_ms=NOW))
    at.tracer.note_worker_end(entry, told(times=worker_times(worker_id="w-1")), NOW + 200)
    at.tracer.note_worker_end(entry, told(times=worker_times(worker_id="w-2")), NOW + 300)
    assert entry.request.trace is not None
    assert entry.request.trace.worker is not None
    assert entry.request.trace.worker.times.worker_id == "w-1"


@pytest.mark.parametrize("asked", [None, TRACEPARENT])
def test_without_a_store_the_clients_context_is_passed_on_unchanged(asked: str | None) -> None:
    """A context of the gateway informs workers that the trace is not recorded."""
    trace = Tracer().start(asked)
    assert trace.traceparent.endswith("-01" if asked else "-00")
    assert asked in {None, trace.traceparent}


# --- at a worker


def served(traceparent: str | None, *, reply_topic: str = "chat.replies", tracer: WorkerTracer | None = None) -> Any:
    bench = Bench()
    if tracer is not None:
        bench.worker._tracer = tracer
    job = bench.accept(0)
    request = msgspec.structs.replace(job.order.request, traceparent=traceparent)
    object.__setattr__(job.order, "request", request)
    object.__setattr__(job.order, "reply_topic", reply_topic)
    job.targets = {(reply_topic, 0): None}
    bench.run()
    return bench


@pytest.mark.parametrize(("traceparent", "told_times"), [(TRACEPARENT, True), (UNSAMPLED, False), (None, False)])
def test_a_worker_sends_its_times_if_the_trace_is_recorded(traceparent: str | None, told_times: bool) -> None:
    bench = served(traceparent, tracer=WorkerTracer(worker_id="w-9"))
    (end,) = bench.ends()
    assert (end.times is not None) is told_times
    if end.times is not None:
        times = end.times
        moments = [times.arrived_unix_ms, times.ready_unix_ms, times.started_unix_ms, *times.prefilled_unix_ms]
        moments += [times.first_token_unix_ms, times.ended_unix_ms]
        assert moments == sorted(moments)
        assert (times.worker_id, len(times.prefilled_unix_ms)) == ("w-9", 1)


def test_an_answer_that_is_repeated_later_has_no_old_times() -> None:
    bench = served(TRACEPARENT, tracer=WorkerTracer())
    assert all(found.done.times is None for found in bench.answers._recent._answered.values())
    assert len(bench.answers._recent) == 1


@pytest.mark.parametrize("topic", ["chat.replies", "chat.replies.shop"])
def test_another_service_gets_the_times_like_a_gateway(topic: str) -> None:
    (end,) = served(TRACEPARENT, reply_topic=topic).ends()
    assert end.times is not None


def adopted(at: AtGateway, cursor: bytes | None, half: ReplyDone | None = None) -> Any:
    """An answer of another gateway that this one has taken over at +300, and that ended at +900."""
    fields = {"adoption": Adoption(latest_unix_ms=NOW), "state": AnswerState.WAITING, "done_unix_ms": NOW + 900}
    entry = entry_of(at.tracer.adopt(cursor, NOW + 300), **fields)
    if half is not None:
        at.tracer.note_worker_end(entry, half, NOW + 900)
    entry.answer.response = answer(entry.response_id, timings=Timings(total_ms=900.0))
    at.tracer.finish(entry, entry.answer.response)
    return entry


def test_an_adopted_answers_trace_continues_the_first_gateways() -> None:
    """The same trace, under the other gateway's root, linked with the context sent to the workers."""
    first, second = AtGateway(), AtGateway(KeepRules(ratio=1.0))
    begun = first.tracer.start(TRACEPARENT)
    cursor = KEY.seal(SessionKey("t", "s")).write(
        [entry_of(begun, response_id="resp_" + "01" * 12).opened().resume_point]
    )
    (told_of,) = KEY.seal(SessionKey("t", "s")).read(cursor) or []
    entry = adopted(second, told_of.trace, told(status="completed", reason="stop"))
    second.exporter.send_all()
    (trace,) = second.store.taken
    assert trace.trace_id == begun.context.trace_id == int(TRACEPARENT.split("-")[1], 16)
    root, process, *_ = trace.spans
    assert (root.name, root.parent_id) == ("response.resume", begun.context.span_id)
    assert [(event.name, event.unix_ms) for event in root.events] == [("adopted", NOW + 300)]
    assert process.name == "process chat.requests.short"
    assert process.links == (int(begun.traceparent.split("-")[2], 16),)
    assert {span.name for span in trace.spans} == {root.name, process.name, "prepare", "queue", "send chat.replies"}
    assert len({span.span_id for span in trace.spans} | {begun.context.child_id(n) for n in range(20)}) == 25
    assert entry.opened().resume_point.trace == told_of.trace, "a third gateway continues with the same"


def test_without_the_workers_times_an_adopted_answer_has_only_its_root_and_no_wait() -> None:
    first, second = AtGateway(), AtGateway(KeepRules(ratio=1.0))
    adopted(second, first.tracer.start(None).packed)
    second.exporter.send_all()
    assert [[span.name for span in trace.spans] for trace in second.store.taken] == [["response.resume"]]


def test_if_either_gateway_records_nothing_an_adopted_answer_has_no_trace() -> None:
    silent, recording = Tracer(), AtGateway(KeepRules(ratio=1.0))
    assert silent.start(TRACEPARENT).packed is None
    assert silent.adopt(recording.tracer.start(None).packed, NOW) is None
    adopted(recording, silent.start(TRACEPARENT).packed)
    assert recording.sent() == []
