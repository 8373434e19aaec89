"""What is on the wire is what the protocol's document says, and comes back as it went."""

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from shared.conversation.handoffs import Handoff
from shared.wire.messages import (
    CLIENT_TYPES,
    Adopt,
    Cancel,
    ChatRequest,
    ClientInfo,
    ClientMessage,
    Consent,
    Erase,
    ErrorDetail,
    ErrorEvent,
    Feedback,
    FeedbackRecorded,
    Grounding,
    HandoffCreated,
    HandoffRequest,
    Limits,
    Message,
    Notice,
    Ping,
    Pong,
    Reply,
    ReplyDelta,
    ReplyDone,
    Response,
    ResponseCancel,
    ResponseCreate,
    ResponseCreated,
    ResponseDelta,
    ResponseDone,
    Resume,
    ServerMessage,
    SessionClosing,
    SessionCreated,
    SessionDelete,
    SessionDeleted,
    SessionRefresh,
    SessionRefreshed,
    SessionStart,
    Timings,
    Usage,
    WorkerReport,
)
from tests.support.hostile.message_strategies import any_of
from tests.support.reliability import Reliability

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNIONS = (ClientMessage, ServerMessage, ChatRequest, Reply, Notice, Handoff)
EVERYTHING = ClientMessage | ServerMessage | ChatRequest | Reply | Notice | Erase | Handoff | WorkerReport


KINDS = tuple(part for union in (*UNIONS, Erase, WorkerReport) for part in getattr(union, "__args__", (union,)))
EXAMPLES = 10_000


def as_written_both_ways(message: Message) -> None:
    """It comes back as it went, both forms carry the same fields, and what a later version adds is ignored."""
    fields = []
    for codec in (msgspec.json, msgspec.msgpack):
        wire = codec.encode(message)
        assert codec.decode(wire, type=EVERYTHING) == message
        fields.append(codec.decode(wire))
        more = {**fields[-1], "of_a_later_version": {"deep": [1, None]}}
        assert codec.decode(codec.encode(more), type=EVERYTHING) == message
    assert fields[0] == fields[1]


def tried(kind: type[Message], examples: int) -> int:
    """How many examples of that type of message went both ways."""
    count = 0

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(any_of(kind))
    def each(message: Message) -> None:
        nonlocal count
        count += 1
        as_written_both_ways(message)

    each()
    return count


@pytest.mark.promise(2)
def test_every_message_goes_both_ways_as_it_is(reliability: Reliability) -> None:
    examples = reliability.amount(EXAMPLES, part=25)
    fewest = min(tried(kind, examples) for kind in KINDS if kind.__struct_fields__)
    for kind in KINDS:
        if not kind.__struct_fields__:  # it has one form
            as_written_both_ways(kind())
    reliability.found(
        figure=f"{len(KINDS)} types of message, {fewest} examples or more of each that has fields",
        target=f"{EXAMPLES} examples of each type of message",
        holds=fewest >= examples,
    )


def test_the_types_that_clients_may_send_are_those_of_the_union() -> None:
    tags = {part.__struct_config__.tag for part in ClientMessage.__args__}
    assert tags == CLIENT_TYPES


DONE = Response(
    id="resp_1",
    status="incomplete",
    reason="max_output_tokens",
    source="model",
    output_text="Hi 你好",
    usage=Usage(input_tokens=9, cached_tokens=4, output_tokens=2),
    timings=Timings(admission_ms=0.5, queue_ms=1.5, prefill_ms=2.0, ttft_ms=4.25, total_ms=8.0),
    model="smollm2",
    error=ErrorDetail(type="server_error", code="engine_failed", message="no", retryable=True),
    grounding=(Grounding(id="refund", question="When?", answer="Soon."),),
)
DONE_FIELDS = (
    '"status":"incomplete","reason":"max_output_tokens","source":"model","output_text":"Hi 你好",'
    '"usage":{"input_tokens":9,"cached_tokens":4,"output_tokens":2},'
    '"timings":{"admission_ms":0.5,"queue_ms":1.5,"prefill_ms":2.0,"ttft_ms":4.25,"total_ms":8.0},'
    '"model":"smollm2",'
    '"error":{"type":"server_error","code":"engine_failed","message":"no","retryable":true},'
    '"grounding":[{"id":"refund","question":"When?","answer":"Soon."}]'
)
LIMITS = Limits(
    max_message_bytes=65536,
    max_input_tokens=1024,
    max_output_tokens=512,
    max_inflight=4,
    messages_per_minute=100,
    first_token_ms=200,
    deadline_ms=1000,
)
GOLDEN: list[tuple[Message, str]] = [
    (SessionStart(), '{"type":"session.start"}'),
    (
        SessionStart(token="t", session_id="s", resume=Resume(cursor="c"), client=ClientInfo(name="web", version="1")),
        (
            '{"type":"session.start","token":"t","session_id":"s","resume":{"cursor":"c"},'
            '"client":{"name":"web","version":"1"}}'
        ),
    ),
    (SessionStart(consent=Consent(training=True)), '{"type":"session.start","consent":{"training":true}}'),
    (SessionRefresh(token="t"), '{"type":"session.refresh","token":"t"}'),
    (SessionDelete(), '{"type":"session.delete"}'),
    (ResponseCreate(event_id="e", input="hi"), '{"type":"response.create","event_id":"e","input":"hi"}'),
    (
        ResponseCreate(
            event_id="e",
            input="hi",
            max_output_tokens=9,
            temperature=0.5,
            top_p=0.9,
            seed=7,
            stop=("\n",),
            deadline_ms=900,
            first_token_ms=100,
            metadata={"k": "v"},
            traceparent=TRACEPARENT,
        ),
        (
            '{"type":"response.create","event_id":"e","input":"hi","max_output_tokens":9,"temperature":0.5,"top_p":0.9,'
            '"seed":7,"stop":["\\n"],"deadline_ms":900,"first_token_ms":100,"metadata":{"k":"v"},'
            f'"traceparent":"{TRACEPARENT}"}}'
        ),
    ),
    (
        ResponseCancel(response_id="r", target_event_id="e"),
        '{"type":"response.cancel","response_id":"r","target_event_id":"e"}',
    ),
    (HandoffRequest(), '{"type":"handoff.request"}'),
    (HandoffRequest(event_id="e", language="zh"), '{"type":"handoff.request","event_id":"e","language":"zh"}'),
    (Feedback(response_id="r", rating="up"), '{"type":"feedback","response_id":"r","rating":"up"}'),
    (
        Feedback(response_id="r", event_id="e", rating="down", resolved=False, reason="wrong"),
        '{"type":"feedback","response_id":"r","event_id":"e","rating":"down","resolved":false,"reason":"wrong"}',
    ),
    (Pong(), '{"type":"pong"}'),
    (
        SessionCreated(
            session_id="s",
            connection_id="c",
            recovered=False,
            replayed=0,
            limits=LIMITS,
            heartbeat_s=25.0,
            expires_at=99,
            handoff=True,
        ),
        (
            '{"type":"session.created","session_id":"s","connection_id":"c","recovered":false,"replayed":0,'
            '"limits":{"max_message_bytes":65536,"max_input_tokens":1024,"max_output_tokens":512,"max_inflight":4,'
            '"messages_per_minute":100,"first_token_ms":200,"deadline_ms":1000},"heartbeat_s":25.0,"expires_at":99,'
            '"handoff":true}'
        ),
    ),
    (SessionRefreshed(expires_at=5), '{"type":"session.refreshed","expires_at":5}'),
    (SessionDeleted(session_id="s"), '{"type":"session.deleted","session_id":"s"}'),
    (
        SessionClosing(reason="shutdown", reconnect_after_ms=5),
        '{"type":"session.closing","reason":"shutdown","reconnect_after_ms":5}',
    ),
    (
        ResponseCreated(response_id="r", event_id="e", bucket="short", eta_ms=3),
        '{"type":"response.created","response_id":"r","event_id":"e","bucket":"short","eta_ms":3}',
    ),
    (
        ResponseDelta(response_id="r", seq=0, offset=0, delta="Hi", cursor="r@2"),
        '{"type":"response.output_text.delta","response_id":"r","seq":0,"offset":0,"delta":"Hi","cursor":"r@2"}',
    ),
    (
        ResponseDone(response=DONE, cursor="r@5"),
        f'{{"type":"response.done","response":{{"id":"resp_1",{DONE_FIELDS}}},"cursor":"r@5"}}',
    ),
    (
        HandoffCreated(handoff_id="h", reason="requested", created_at=5, event_id="e"),
        '{"type":"handoff.created","handoff_id":"h","reason":"requested","created_at":5,"event_id":"e"}',
    ),
    (
        FeedbackRecorded(response_id="r", event_id="e", rating="up", resolved=True, reason="other"),
        (
            '{"type":"feedback.recorded","response_id":"r","event_id":"e","rating":"up","resolved":true,'
            '"reason":"other"}'
        ),
    ),
    (
        ErrorEvent(
            event_id="e",
            error=ErrorDetail(
                type="rate_limit_error", code="c", message="m", retryable=False, param="p", retry_after_ms=1
            ),
        ),
        (
            '{"type":"error","error":{"type":"rate_limit_error","code":"c","message":"m","retryable":false,"param":"p",'
            '"retry_after_ms":1},"event_id":"e"}'
        ),
    ),
    (Ping(), '{"type":"ping"}'),
    (
        ChatRequest(id="r", session_id="s", input="hi"),
        '{"type":"chat.request","id":"r","session_id":"s","input":"hi"}',
    ),
    (
        ChatRequest(
            id="r",
            session_id="s",
            input="hi",
            tenant="t",
            max_output_tokens=9,
            temperature=1.0,
            top_p=1.0,
            seed=1,
            stop=("x",),
            created_unix_ms=1,
            deadline_unix_ms=3,
            first_token_unix_ms=2,
            reply_topic="chat.replies",
            reply_partition=0,
            metadata={"k": "v"},
            traceparent=TRACEPARENT,
            consent=Consent(training=True),
        ),
        (
            '{"type":"chat.request","id":"r","session_id":"s","input":"hi","tenant":"t","max_output_tokens":9,'
            '"temperature":1.0,"top_p":1.0,"seed":1,"stop":["x"],"created_unix_ms":1,"deadline_unix_ms":3,'
            '"first_token_unix_ms":2,"reply_topic":"chat.replies","reply_partition":0,"metadata":{"k":"v"},'
            f'"traceparent":"{TRACEPARENT}","consent":{{"training":true}}}}'
        ),
    ),
    (
        ReplyDelta(request_id="r", session_id="s", attempt=1, seq=2, offset=3, delta="x"),
        '{"type":"chat.delta","request_id":"r","session_id":"s","attempt":1,"seq":2,"offset":3,"delta":"x"}',
    ),
    (
        ReplyDone(
            request_id="r",
            session_id="s",
            attempt=1,
            status=DONE.status,
            reason=DONE.reason,
            source=DONE.source,
            output_text=DONE.output_text,
            usage=DONE.usage,
            timings=DONE.timings,
            model=DONE.model,
            error=DONE.error,
            grounding=DONE.grounding,
        ),
        f'{{"type":"chat.done","request_id":"r","session_id":"s","attempt":1,{DONE_FIELDS}}}',
    ),
    (Cancel(request_id="r"), '{"type":"chat.cancel","request_id":"r"}'),
    (
        Adopt(request_id="r", reply_partition=3, created_unix_ms=5),
        '{"type":"chat.adopt","request_id":"r","reply_partition":3,"created_unix_ms":5}',
    ),
    (
        Handoff(
            id="h",
            tenant="t",
            session_id="s",
            reason="fallbacks",
            language="zh",
            created_unix_ms=5,
            transcript="replyline:{t/s}:turns",
            response_ids=("a", "b"),
        ),
        (
            '{"type":"chat.handoff","id":"h","tenant":"t","session_id":"s","reason":"fallbacks","language":"zh",'
            '"created_unix_ms":5,"transcript":"replyline:{t/s}:turns","response_ids":["a","b"]}'
        ),
    ),
]


@pytest.mark.parametrize(("message", "wire"), GOLDEN, ids=lambda value: type(value).__name__)
def test_the_wire_has_the_names_of_the_protocol(message: Message, wire: str) -> None:
    assert msgspec.json.encode(message).decode() == wire
    assert msgspec.json.decode(wire, type=EVERYTHING) == message


def test_every_message_has_its_golden_encoding() -> None:
    every: set[Any] = {part for union in UNIONS for part in getattr(union, "__args__", (union,))}
    assert {type(message) for message, _ in GOLDEN} == every


def test_messages_are_immutable() -> None:
    with pytest.raises(AttributeError):
        Cancel(request_id="r").request_id = "other"  # type: ignore[misc]
