"""Any bytes from a client or a producer are a message or a `ProtocolError` that names the field."""

import json
import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared.errors import ProtocolError
from shared.wire.codec import (
    CLIENT_CODECS,
    GATEWAY_CODECS,
    client_decoder,
    decode_erase,
    decode_forgotten,
    decode_notice,
    decode_observation,
    decode_reply,
    decode_report,
    decode_request,
    json_encode,
    msgpack_encode,
)
from shared.wire.messages import (
    ChatRequest,
    ClientMessage,
    Erase,
    Notice,
    Reply,
    ResponseCreate,
    ServerMessage,
    SessionRefresh,
)
from shared.wire.outcome import Message
from shared.wire.reports import Observation, WorkerReport
from tests.support.hostile.message_strategies import any_of

from_json = client_decoder(text=True)
from_msgpack = client_decoder(text=False)

ASK = {"type": "response.create", "event_id": "e1", "input": "hi"}
NESTED = 100_000
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
# Documents that resemble a message up to some point.
NEARLY = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            ["response.create", "session.start", "response.cancel", "chat.request", "chat.done", "?"]
        )
    },
    optional=dict.fromkeys(
        ("event_id", "input", "stop", "metadata", "seed", "resume", "client", "deadline_ms", "id", "session_id"),
        JSON_VALUES,
    ),
)
CODES = {"bad_json", "bad_msgpack", "unknown_type", "invalid_field"}


def refused(decode: Callable[[bytes | str], object], data: bytes | str) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        decode(data)
    return caught.value


def code_of(decode: Callable[[bytes | str], object], data: bytes | str) -> str | None:
    """Return the code of the refusal, or None if the data is accepted and can be encoded again."""
    try:
        message = decode(data)
    except ProtocolError as error:
        return error.code
    msgpack_encode(message)
    return None


def json_of(value: object) -> bytes:
    return msgspec.json.encode(value)


# --- what is well formed


@given(any_of(ClientMessage))
def test_a_gateway_reads_what_a_client_writes(message: Message) -> None:
    for codec in GATEWAY_CODECS.values():
        assert codec.decode(codec.encode(message)) == message


@given(any_of(ServerMessage))
def test_a_client_reads_what_a_gateway_writes(message: Message) -> None:
    for codec in CLIENT_CODECS.values():
        assert codec.decode(codec.encode(message)) == message


@given(any_of(ChatRequest))
def test_a_request_record_is_read_in_either_form(request: ChatRequest) -> None:
    assert decode_request(msgpack_encode(request)) == request
    assert decode_request(json_encode(request)) == request


@given(any_of(Reply), any_of(Notice), any_of(Erase), any_of(WorkerReport))
def test_messages_between_processes_round_trip(
    reply: Reply, notice: Notice, erase: Erase, report: WorkerReport
) -> None:
    assert decode_report(msgpack_encode(report)) == report
    assert decode_reply(msgpack_encode(reply)) == reply
    assert decode_notice(msgpack_encode(notice)) == notice
    assert decode_erase(msgpack_encode(erase)) == erase


def test_text_frames_may_be_text_or_bytes() -> None:
    wire = json_of(ASK)
    assert from_json(wire) == from_json(wire.decode()) == ResponseCreate(event_id="e1", input="hi")


# --- what is not: which code, which field


@pytest.mark.parametrize("data", [b"", b"\xff", b"{", b'{"type":"pong"} {}', b'{"type":"pong","x":01}'])
def test_invalid_json_is_bad_json(data: bytes) -> None:
    error = refused(from_json, data)
    assert (error.code, error.kind, error.retriable) == ("bad_json", "invalid_request_error", False)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x81", b"\x81\xa4type\xa4pong\x00", b"\xde\xff\xff"])
def test_invalid_messagepack_is_bad_msgpack(data: bytes) -> None:
    assert refused(from_msgpack, data).code == "bad_msgpack"


@pytest.mark.parametrize("value", [{}, {"type": None}, {"type": "nope"}, {"type": "chat.request"}, {"type": "x" * 999}])
def test_an_unknown_type_is_named_and_the_known_ones_are_listed(value: object) -> None:
    for decode, encode in ((from_json, msgspec.json.encode), (from_msgpack, msgspec.msgpack.encode)):
        error = refused(decode, encode(value))
        assert (error.code, error.param) == ("unknown_type", "type")
        assert "response.create" in str(error)
        assert len(str(error)) < 300


@pytest.mark.parametrize("value", [[], 5, "pong", None, {"type": 5}, {"type": [1] * 1_000}, {"type": {"a": 1}}])
def test_a_value_without_an_object_type_gets_a_short_error(value: object) -> None:
    for decode, encode in ((from_json, msgspec.json.encode), (from_msgpack, msgspec.msgpack.encode)):
        error = refused(decode, encode(value))
        assert (error.code, error.param) == ("invalid_field", "type")
        assert len(str(error)) < 300


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"event_id": ""}, "event_id"),
        ({"event_id": "x" * 65}, "event_id"),
        ({"event_id": "-starts wrong"}, "event_id"),
        ({"event_id": "e\n"}, "event_id"),
        ({"event_id": ["e"]}, "event_id"),
        ({"input": ""}, "input"),
        ({"max_output_tokens": -2}, "max_output_tokens"),
        ({"max_output_tokens": 1.5}, "max_output_tokens"),
        ({"max_output_tokens": 2**64}, "max_output_tokens"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 1.01}, "top_p"),
        ({"seed": 2**64}, "seed"),
        ({"stop": ["a", {}]}, "stop[1]"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"deadline_ms": -2}, "deadline_ms"),
        ({"deadline_ms": 2**70}, "deadline_ms"),
        ({"first_token_ms": -2}, "first_token_ms"),
        ({"metadata": ["a"]}, "metadata"),
        ({"metadata": {"k" * 65: "v"}}, "metadata"),
        ({"metadata": {"k": "v" * 513}}, "metadata[...]"),
        ({"metadata": {str(n): "v" for n in range(17)}}, "metadata"),
    ],
    ids=str,
)
def test_a_wrong_field_is_named(change: dict[str, object], param: str) -> None:
    wire = json_of({**ASK, **change})
    error = refused(from_json, wire)
    assert (error.code, error.param) == ("invalid_field", param)
    assert f"`{param}`: expected" in str(error)
    assert not any(words in str(error) for words in ("`$.", "regex", "length >= 1"))


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"type": "response.create", "event_id": "e"}, "input"),
        ({"type": "response.create", "input": "x"}, "event_id"),
        ({"type": "session.refresh"}, "token"),
        ({"type": "session.start", "resume": {"age_ms": 5}}, "cursor"),
        ({"type": "session.start", "client": {"name": [5]}}, "client.name"),
        ({"type": "response.create", "event_id": "e", "input": None}, "input"),
    ],
)
def test_a_missing_field_is_named(message: dict[str, object], param: str) -> None:
    for decode, encode in ((from_json, msgspec.json.encode), (from_msgpack, msgspec.msgpack.encode)):
        error = refused(decode, encode(message))
        assert (error.code, error.param) == ("invalid_field", param)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_nan_and_infinity_are_read_as_null(number: float) -> None:
    said, read = {**ASK, "temperature": number}, ResponseCreate(event_id="e1", input="hi")
    assert from_msgpack(msgspec.msgpack.encode(said)) == from_json(json.dumps(said)) == read


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1.0])
@pytest.mark.parametrize(
    "field", [{"backlog_ms": 0}, {"first_token_ms": {"short": 0}}, {"law": {"decode_ms": 0}}], ids=str
)
def test_a_report_with_what_is_no_number_is_refused(field: dict[str, Any], number: float) -> None:
    """Its worker is at fault, and would look idle without it."""
    report = {"type": "chat.worker", "worker_id": "w", "unix_ms": 5, "buckets": ["short"], "slots": 1}
    told = {name: number if value == 0 else dict.fromkeys(value, number) for name, value in field.items()}
    with pytest.raises(ProtocolError):
        decode_report(msgspec.msgpack.encode(report | told))
    assert decode_report(msgspec.msgpack.encode(report | field))


@pytest.mark.parametrize("time", [math.nan, math.inf, -1.0])
def test_an_observation_whose_time_is_no_number_is_refused(time: float) -> None:
    """It would hide every slow answer that is compared with it."""
    seen = Observation(
        response_id="r", conversation="c", lane="canary", revision="v", epoch=1, unix_ms=1, bucket="short", ttft_ms=5.0
    )
    assert decode_observation(msgpack_encode(seen)) == seen
    with pytest.raises(ProtocolError):
        decode_observation(msgpack_encode(msgspec.structs.replace(seen, ttft_ms=time)))


@pytest.mark.parametrize("digits", [20, 40, 400, 5_000])
def test_huge_integers_are_refused_in_numeric_fields(digits: int) -> None:
    for name in ("max_output_tokens", "seed", "deadline_ms", "first_token_ms"):
        error = refused(from_json, f'{{"type":"response.create","event_id":"e","input":"x","{name}":{"9" * digits}}}')
        assert (error.code, error.param) == ("invalid_field", name)


@pytest.mark.parametrize(
    ("decode", "data"),
    [
        (from_json, r'{"type":"session.refresh","token":"a\ud800"}'),
        (from_json, '{"type":"session.refresh","token":"a\ud800"}'),
        (from_json, b'{"type":"session.refresh","token":"a\xed\xa0\x80"}'),
        (from_json, b'{"type":"session.refresh","token":"a\xf0\x9f\x93"}'),
        (from_msgpack, b"\x82\xa4type\xafsession.refresh\xa5token\xa4a\xed\xa0\x80"),
        (from_msgpack, b"\x82\xa4type\xafsession.refresh\xa5token\xa4a\xf0\x9f\x93"),
    ],
)
def test_invalid_unicode_is_replaced(decode: Callable[[Any], object], data: bytes | str) -> None:
    assert decode(data) == SessionRefresh(token="a\ufffd")


def test_many_broken_texts_in_messagepack_cost_little() -> None:
    """Each is repaired separately, so a message with an unlikely number of them is refused."""
    broken = msgspec.msgpack.encode(ASK | {"stop": [f"{n:05}###" for n in range(5_000)]}).replace(
        b"###", b"\xf0\x9f\x93"
    )
    assert refused(from_msgpack, broken).code == "bad_msgpack"


@pytest.mark.parametrize(
    "data", [b"[" * NESTED, b'{"type":"pong","x":' + b"[" * NESTED, b'{"x":' * NESTED], ids=["list", "field", "map"]
)
def test_unbounded_nesting_is_refused(data: bytes) -> None:
    error = refused(from_json, data)
    assert (error.code in CODES, error.event_id) == (True, None)


@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1x", b"\x82\xa4type\xa4pong\xa1x\x91"])
def test_unbounded_nesting_is_refused_in_messagepack(opening: bytes) -> None:
    data = opening + b"\x91" * NESTED
    assert refused(from_msgpack, data).code in CODES
    for decode in (decode_request, decode_reply, decode_notice, decode_erase, decode_forgotten, decode_report):
        assert refused(decode, data).code == "invalid_record"


# --- arbitrary input


@given(st.binary(max_size=200))
@example(b"\x81\xa4type\xd6\xff\xff\xff\xff\xff")
@example(b"\x82\xa4type\xaachat.delta\xaarequest_id\xa1\xff")
@example(b"\x81\xa4type\xa1\xff")
def test_arbitrary_bytes_are_a_message_or_a_protocol_error(data: bytes) -> None:
    decoders: list[Callable[[bytes], object]] = [
        from_json,
        from_msgpack,
        decode_request,
        decode_reply,
        decode_notice,
        decode_erase,
        decode_report,
    ]
    for decode in decoders:
        assert code_of(decode, data) in {None, "invalid_record", *CODES}


@given(JSON_VALUES | NEARLY, st.booleans())
def test_arbitrary_values_are_a_message_or_a_protocol_error(value: object, text: bool) -> None:
    try:
        data = (msgspec.json if text else msgspec.msgpack).encode(value)
    except OverflowError:  # an integer without a MessagePack form
        return
    assert code_of(from_json if text else from_msgpack, data) in {None, "unknown_type", "invalid_field"}
    assert code_of(decode_request, data) in {None, "invalid_record"}


@given(st.text(max_size=60))
def test_arbitrary_text_is_a_message_or_a_protocol_error(text: str) -> None:
    assert code_of(from_json, text) in {None, *CODES}


# --- records


def test_a_record_without_a_value_is_refused() -> None:
    assert refused(decode_request, None).code == "invalid_record"  # type: ignore[arg-type]
    assert refused(decode_reply, None).code == "invalid_record"  # type: ignore[arg-type]
    assert refused(decode_notice, None).code == "invalid_record"  # type: ignore[arg-type]
    assert refused(decode_erase, None).code == "invalid_record"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", ["created_unix_ms", "deadline_unix_ms", "first_token_unix_ms", "reply_partition", "max_output_tokens"]
)
def test_a_producers_number_can_be_encoded_again_or_is_refused(name: str) -> None:
    """Values that JSON allows and MessagePack cannot encode stop here, not at the router's producer."""
    error = refused(
        decode_request,  # type: ignore[arg-type]
        f'{{"type":"chat.request","id":"a","session_id":"s","input":"x","{name}":{2**64}}}'.encode(),
    )
    assert (error.code, name in str(error)) == ("invalid_record", True)


# --- which event an error belongs to


@given(st.text(min_size=1, max_size=64))
def test_an_error_names_its_event(event_id: str) -> None:
    broken = {**ASK, "event_id": event_id, "input": ""}
    assert refused(from_json, msgspec.json.encode(broken)).event_id == event_id
    assert refused(from_msgpack, msgspec.msgpack.encode(broken)).event_id == event_id


@pytest.mark.parametrize("event_id", [None, 5, "x" * 65, ["e"]])
def test_an_invalid_event_id_is_not_repeated(event_id: object) -> None:
    assert refused(from_json, json_of({**ASK, "input": "", "event_id": event_id})).event_id is None


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b"\xc1"])
def test_an_unreadable_message_has_no_event_id(data: bytes) -> None:
    assert refused(from_json, data).event_id is None
    assert refused(from_msgpack, data).event_id is None


def test_an_error_names_an_event_id_with_invalid_unicode() -> None:
    assert refused(from_json, '{"event_id":"\ud800"}').event_id == "\ufffd"
