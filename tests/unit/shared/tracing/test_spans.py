"""A request's times form one tree: one root, each span within its parent, nothing that a customer wrote."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.request.cursor import Place
from gateway.request.entry import SEND_SPAN, Entry, RequestTrace
from gateway.telemetry.trace_spans import KeptTrace, kept_trace, spans_of, why_kept
from shared.faq.fallback import Fallback
from shared.tracing import conventions as names
from shared.tracing.context import begin_trace
from shared.tracing.spans import KeepRules, Span, Trace
from shared.tracing.worker import WorkerHalf
from shared.wire.outcome import Usage, WorkerTimes
from shared.wire.session_key import SessionKey
from tests.support.builders.gateway import Requests, done, make_entry

NOW = 1_760_000_000_000.0
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
DAY_MS = 86_400_000.0


def request_trace(traceparent: str | None = None, **times: Any) -> RequestTrace:
    context = begin_trace(traceparent, 7 << 64 | 9)
    return RequestTrace(context=context, traceparent=context.traceparent(SEND_SPAN), **times)


def worker_times(**fields: Any) -> WorkerTimes:
    at = {"arrived_unix_ms": NOW + 12, "ready_unix_ms": NOW + 20, "ended_unix_ms": NOW + 190}
    return WorkerTimes(**({"worker_id": "w-1", **at} | fields))


def worker_half(times: WorkerTimes, heard_unix_ms: float = NOW + 195, **fields: Any) -> WorkerHalf:
    usage = Usage(input_tokens=300, cached_tokens=100, output_tokens=9)
    told = done("a secret answer", usage=usage, model="smollm2", times=times, **fields)
    half = WorkerHalf.from_reply(told, heard_unix_ms)
    assert half is not None
    return half


def entry_of(trace: RequestTrace | None, **fields: Any) -> Entry:
    """Return a trace entry accepted at NOW, with 3 s for the first text and 15 s for the whole."""
    secret = {"event_id": "secret-event", "session": SessionKey("secret-tenant", "secret"), "input": "a secret"}
    soft, hard = int(NOW) + 3_000, int(NOW) + 15_000
    return make_entry(soft=soft, hard=hard, received=NOW, trace=trace, **(secret | fields))


def answered(trace: RequestTrace, *, worker: WorkerHalf | None = None) -> KeptTrace:
    """Sent at +2, acknowledged at +8, first text at +100, whole at +200."""
    trace.sent_unix_ms, trace.acked_unix_ms = NOW + 2, NOW + 8
    if worker is not None:
        trace.worker, trace.heard_unix_ms = worker, worker.heard_unix_ms
    table, entry = Requests(), entry_of(trace)
    table.accept(entry)
    entry.answer.admit(NOW + 1)
    entry.publication.place = Place(2, 41)
    entry.acknowledge()
    entry.show("a secret", NOW + 100)
    table.finish(entry, done("a secret answer"), NOW + 200)
    return _ended(entry)


def _ended(entry: Entry) -> KeptTrace:
    assert entry.answer.response is not None
    why = why_kept(entry, entry.answer.response, KeepRules(ratio=1.0))
    assert why is not None
    return kept_trace(
        entry,
        entry.answer.response,
        why,
        gateway_id="gw-0",
        request_topic="chat.requests.short",
        reply_topic="chat.replies",
    )


def check_tree(trace: Trace) -> dict[str, Span]:
    """Check for one root, unique ids, each span within its parent and ending no earlier than it began, events within
    their span.
    """
    by_id = {span.span_id: span for span in trace.spans}
    assert len(by_id) == len(trace.spans)
    roots = [span for span in trace.spans if span.parent_id not in by_id]
    assert roots == [trace.spans[0]]
    for span in trace.spans:
        assert span.start_unix_ms <= span.end_unix_ms, span.name
        for event in span.events:
            assert span.start_unix_ms <= event.unix_ms <= span.end_unix_ms
        assert all(link in by_id for link in span.links)
        if span is not trace.spans[0]:
            assert span.parent_id is not None
            parent = by_id[span.parent_id]
            assert parent.start_unix_ms <= span.start_unix_ms, span.name
            assert span.end_unix_ms <= parent.end_unix_ms, span.name
    return {span.name: span for span in trace.spans}


def whole() -> WorkerHalf:
    return worker_half(
        worker_times(
            kv_asked_unix_ms=NOW + 13,
            kv_found_unix_ms=NOW + 18,
            started_unix_ms=NOW + 30,
            prefilled_unix_ms=(NOW + 60, NOW + 90),
            first_token_unix_ms=NOW + 90,
        )
    )


def test_a_whole_answer_is_traced_from_the_gateway_to_the_engine_and_back() -> None:
    trace = spans_of(answered(request_trace(TRACEPARENT), worker=whole()))
    spans = check_tree(trace)
    assert {name: (span.start_unix_ms - NOW, span.end_unix_ms - NOW) for name, span in spans.items()} == {
        "response.create": (0, 200),
        "send chat.requests.short": (2, 8),
        "admit": (0, 1),
        "wait chat.requests.short": (8, 12),
        "process chat.requests.short": (12, 190),
        "prepare": (12, 20),
        "restore kv": (13, 18),
        "queue": (20, 30),
        "chat smollm2": (30, 190),
        "prefill": (30, 90),
        "prefill chunk": (60, 90),  # the last of two
        "decode": (90, 190),
        "send chat.replies": (190, 195),
        "deliver": (100, 200),
    }
    assert f"{trace.trace_id:032x}" == TRACEPARENT[3:35]
    assert spans["response.create"].parent_id == int(TRACEPARENT[36:52], 16)
    assert spans["process chat.requests.short"].links == (spans["send chat.requests.short"].span_id,)
    inference = spans["chat smollm2"].attributes
    assert inference[names.GEN_AI_USAGE_INPUT_TOKENS] == 300
    assert inference[names.GEN_AI_RESPONSE_FINISH_REASONS] == ("stop",)
    sent = spans["send chat.requests.short"].attributes
    assert (sent[names.MESSAGING_DESTINATION_PARTITION_ID], sent[names.MESSAGING_KAFKA_OFFSET]) == ("2", 41)
    assert not any(span.error for span in trace.spans)


@pytest.mark.parametrize("missing", [False, True])
def test_an_answer_without_its_conversations_turns_says_so(*, missing: bool) -> None:
    trace = spans_of(answered(request_trace(), worker=worker_half(worker_times(turns_missing=missing))))
    assert check_tree(trace)["prepare"].attributes == ({names.TURNS_MISSING: True} if missing else {})


def test_workers_get_the_span_that_sent_the_request() -> None:
    """Any other reader of the topic is a child of it."""
    trace = request_trace(TRACEPARENT)
    told = trace.traceparent.split("-")
    spans = check_tree(spans_of(answered(trace, worker=whole())))
    assert told == ["00", TRACEPARENT[3:35], f"{spans['send chat.requests.short'].span_id:016x}", "01"]


def test_a_trace_contains_nothing_of_a_customer() -> None:
    """No text, session, event or tenant."""
    assert "secret" not in repr(spans_of(answered(request_trace(), worker=whole())))


def test_without_a_workers_report_the_trace_has_the_gateways_half() -> None:
    ended_ = answered(request_trace())
    assert ended_.awaits_worker
    assert check_tree(spans_of(ended_)).keys() == {"response.create", "send chat.requests.short", "admit", "deliver"}


def test_a_fallback_before_kafka_is_two_events() -> None:
    """The question was never sent, so no worker is waited for; a missed promise is an error with its reason."""
    table, entry = Requests(), entry_of(request_trace(), fallback="infeasible")
    table.accept(entry)
    entry.answer.admit(NOW + 1)
    table.fall_back(entry, Fallback(source="faq", text="a secret", language="en"), NOW + 2)
    facts = _ended(entry)
    assert not facts.awaits_worker
    spans = check_tree(spans_of(facts))
    assert spans.keys() == {"response.create", "admit", "deliver"}
    assert spans["response.create"].error == "infeasible"
    assert spans["response.create"].attributes[names.FALLBACK] == "infeasible"


@pytest.mark.parametrize("skew_ms", [-DAY_MS, -40.0, 40.0, DAY_MS])
def test_spans_of_a_worker_with_a_wrong_clock_are_shifted_into_their_parent(skew_ms: float) -> None:
    """Its spans keep their lengths, and the shift is recorded."""
    times = worker_times(
        arrived_unix_ms=NOW + 12 + skew_ms,
        ready_unix_ms=NOW + 20 + skew_ms,
        started_unix_ms=NOW + 30 + skew_ms,
        first_token_unix_ms=NOW + 90 + skew_ms,
        ended_unix_ms=NOW + 190 + skew_ms,
    )
    spans = check_tree(spans_of(answered(request_trace(), worker=worker_half(times))))
    process, decode = spans["process chat.requests.short"], spans["decode"]
    assert process.end_unix_ms - process.start_unix_ms == 178
    assert decode.end_unix_ms - decode.start_unix_ms == 100
    assert process.attributes[names.CLOCK_SHIFT_MS] == pytest.approx(-skew_ms, abs=12)


def test_a_worker_that_continued_after_the_end_reports_by_how_much() -> None:
    times = worker_times(ended_unix_ms=NOW + 450)
    spans = check_tree(spans_of(answered(request_trace(), worker=worker_half(times, NOW + 460))))
    process = spans["process chat.requests.short"]
    assert process.end_unix_ms == NOW + 200
    assert process.attributes[names.OVERRUN_MS] == 250


moments = st.floats(-5_000, 20_000).map(lambda ms: NOW + ms) | st.floats(-DAY_MS, DAY_MS).map(lambda ms: NOW + ms)
maybe = st.none() | moments


@given(
    trace=st.builds(
        request_trace,
        st.sampled_from([None, TRACEPARENT]),
        sent_unix_ms=maybe,
        acked_unix_ms=maybe,
        last_text_unix_ms=maybe,
    ),
    facts=st.fixed_dictionaries(
        {
            "received_unix_ms": moments,
            "admitted_unix_ms": maybe,
            "first_text_unix_ms": maybe,
            "done_unix_ms": moments,
            "place": st.none() | st.builds(Place, st.integers(0, 99), st.integers(0, 2**40)),
        }
    ),
    times=st.none()
    | st.builds(
        WorkerTimes,
        worker_id=st.just("w-1"),
        arrived_unix_ms=moments,
        ready_unix_ms=moments,
        ended_unix_ms=moments,
        kv_asked_unix_ms=maybe,
        kv_found_unix_ms=maybe,
        started_unix_ms=maybe,
        prefilled_unix_ms=st.lists(moments, max_size=5).map(tuple),
        first_token_unix_ms=maybe,
    ),
    heard=moments,
)
@example(
    trace=request_trace(sent_unix_ms=NOW),
    facts={
        "received_unix_ms": NOW,
        "admitted_unix_ms": None,
        "first_text_unix_ms": None,
        "done_unix_ms": NOW,
        "place": None,
    },
    times=worker_times(started_unix_ms=NOW + 50),
    heard=NOW + 9_000,
)
def test_any_clock_readings_give_one_tree(
    trace: RequestTrace, facts: dict[str, Any], times: WorkerTimes | None, heard: float
) -> None:
    if times is not None:
        trace.worker, trace.heard_unix_ms = worker_half(times, heard), heard
    check_tree(
        spans_of(
            KeptTrace(
                trace=trace,
                why="missed",
                gateway_id="gw-0",
                request_topic="chat.requests.short",
                reply_topic="chat.replies",
                attributes={},
                clock_ms=0,
                **facts,
            )
        )
    )
