"""At every entrance a message reads the same as other serializers write it: one table of entrances, one of habits."""

import base64
import functools
import gzip
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.doors.ai_sdk.bodies import ChatBody as AiSdkBody
from gateway.doors.ai_sdk.bodies import chat_question as ai_sdk_question
from gateway.doors.ai_sdk.sockets import _decode as decode_frame
from gateway.doors.chatwoot.events import decode_errand, read_event
from gateway.doors.edge.door import _entries as decode_journal
from gateway.doors.grpc.messages import client_message
from gateway.doors.grpc.messages import read as read_protobuf
from gateway.doors.grpc.replyline.v1 import replyline_pb2 as v1
from gateway.doors.openai.bodies import ChatBody, ResponsesBody, chat_question
from gateway.http.bodies import read_body
from shared.conversation.handoffs import decode_handoff
from shared.errors import ProtocolError
from shared.versions.registry import decode_entry
from shared.wire import codec
from shared.wire.fields import MAX_INTEGER
from shared.wire.lenient import UNREADABLE
from shared.wire.requests import names_in, open_request

HALF = "where is my parcel \ud83d"
ASKS = {"type": "response.create", "event_id": "e1", "input": HALF, "seed": 7, "deadline_ms": 9_000, "turns": []}
RECORD = {"type": "chat.request", "id": "r1", "session_id": "s1", "input": HALF, "max_output_tokens": 75}
PARTS = {"role": "user", "parts": [{"type": "text", "text": HALF}]}
NAMED = {"request_id": "r1", "reply_partition": 3, "created_unix_ms": 1_795_867_200_000}
NUMBERED = {"id": 7, "status": "pending"}
TURN = {"request_id": "r1", "user": HALF, "output_text": "a", "source": "faq", "created_unix_ms": 5}


@dataclass(frozen=True, slots=True)
class Entrance:
    """`decode` accepts JSON, or plain objects if `plain`; `packed`: MessagePack."""

    decode: Callable[[Any], Any]
    message: Any
    packed: bool = False
    plain: bool = False

    def read(self, message: Any) -> Any:
        if self.plain:
            return self.decode(message)
        if self.packed:
            whole = json.dumps(message).replace("\\ud83d", "###")
            return self.decode(msgspec.msgpack.encode(json.loads(whole)).replace(b"###", b"\xed\xa0\xbd"))
        return self.decode(json.dumps(message).encode())


def record(decode: Callable[[bytes], Any], **message: Any) -> dict[str, Entrance]:
    name = str(message["type"])
    return {f"{name} in {form}": Entrance(decode, message, form == "MessagePack") for form in ("JSON", "MessagePack")}


ENTRANCES: dict[str, Entrance] = {
    "WebSocket, JSON": Entrance(codec.client_decoder(text=True), ASKS),
    "WebSocket, MessagePack": Entrance(codec.client_decoder(text=False), ASKS, packed=True),
    "WebSocket, session.start": Entrance(
        codec.client_decoder(text=True), {"type": "session.start", "session_id": "s1", "token": "t"}
    ),
    "WebSocket, response.cancel": Entrance(
        codec.client_decoder(text=False), {"type": "response.cancel", "target_event_id": "e1"}, packed=True
    ),
    "WebSocket, handoff.request": Entrance(
        codec.client_decoder(text=True), {"type": "handoff.request", "event_id": "e1", "language": "zh"}
    ),
    "gRPC": Entrance(
        lambda said: client_message({"response_create": {**said, "input": "hi"}}), {**ASKS, "input": "hi"}, plain=True
    ),
    "chat completions": Entrance(
        lambda data: read_body(data, ChatBody),
        {"model": "replyline", "messages": [{"role": "user", "content": HALF}], "max_tokens": 75, "n": 1},
    ),
    "responses": Entrance(
        lambda data: read_body(data, ResponsesBody),
        {"model": "replyline", "input": [{"role": "user", "content": [{"type": "input_text", "text": HALF}]}]},
    ),
    "AI SDK": Entrance(lambda data: read_body(data, AiSdkBody), {"id": "c1", "messages": [PARTS]}),
    "AI SDK, sockets": Entrance(
        decode_frame, {"type": "send", "requestId": "1", "id": "c1", "messages": [PARTS], "headers": {"a": "b"}}
    ),
    "Chatwoot": Entrance(
        read_event,
        {
            "event": "message_created",
            "id": 5,
            "message_type": "incoming",
            "content": HALF,
            "account": {"id": 1},
            "conversation": NUMBERED,
        },
    ),
    "edge": Entrance(decode_journal, [{"session_id": "s1", "turn": TURN}, {"session_id": "s1", "erased": 3}]),
    **record(lambda value: open_request(value, {}), **RECORD),
    **record(codec.decode_notice, type="chat.cancel", **NAMED),
    **record(codec.decode_notice, type="chat.adopt", **NAMED),
    **record(codec.decode_erase, type="chat.erase", tenant="demo", session_id="s1", generation=4),
    **record(codec.decode_forgotten, type="chat.forgotten", person="0a1b", unix_ms=4),
    **record(
        codec.decode_reply, type="chat.delta", request_id="r1", session_id="s", attempt=1, seq=0, offset=0, delta=HALF
    ),
    **record(
        decode_handoff,
        type="chat.handoff",
        id="h1",
        tenant="demo",
        session_id="s1",
        reason="requested",
        language="en",
        created_unix_ms=7,
        transcript="key",
    ),
    **record(decode_errand, type="chat.post", account=1, conversation=7, tenant="t", session_id="s", created_unix_ms=5),
    **record(decode_entry, type="checked", revision="r1", author="a", unix_ms=5, failures=[]),
}


def each(message: Any, change: Callable[[Any], Any]) -> Any:
    """The message with each of its numbers and texts changed, however deep."""
    if isinstance(message, dict):
        return {name: each(value, change) for name, value in message.items()}
    if isinstance(message, list):
        return [each(value, change) for value in message]
    return change(message)


def with_nulls(message: Any) -> Any:
    """The message with null for its absent fields and for an unknown one."""
    absent = ("metadata", "stop", "temperature", "top_p", "consent", "resume", "status", "private", "user", "unknown")
    if isinstance(message, list):
        return [with_nulls(value) for value in message]
    if not isinstance(message, dict):
        return message
    return {**dict.fromkeys(absent), **{name: with_nulls(value) for name, value in message.items()}}


def with_empty_texts(message: Any) -> Any:
    nulls = with_nulls(message)
    return {name: "" if value is None else value for name, value in nulls.items()} if isinstance(nulls, dict) else nulls


def with_empty(of_another: list[Any] | dict[str, Any]) -> Callable[[Any], Any]:
    """PHP writes an empty map as a list, Lua an empty list as a map."""
    absent = ("metadata", "consent", "resume", "stream_options") if of_another == [] else ("stop", "turns", "failures")

    def habit(message: Any) -> Any:
        return {**dict.fromkeys(absent, of_another), **message} if isinstance(message, dict) else message

    return habit


HABITS: dict[str, Callable[[Any], Any]] = {
    "null for what is absent": with_nulls,
    "empty texts for what is absent": with_empty_texts,
    "an empty list for an absent map": with_empty([]),
    "an empty map for an absent list": with_empty({}),
    "integers as floats": lambda message: each(message, lambda value: float(value) if type(value) is int else value),
    "integers as texts": lambda message: each(message, lambda value: str(value) if type(value) is int else value),
    "unknown fields": lambda message: {**message, "colour": {"a": [1]}} if isinstance(message, dict) else message,
}


@pytest.mark.parametrize("habit", HABITS)
@pytest.mark.parametrize("entrance", ENTRANCES)
def test_a_message_reads_the_same_from_any_serializer(entrance: str, habit: str) -> None:
    at = ENTRANCES[entrance]
    whole = each(at.message, lambda value: "whole" if value == HALF else value)
    assert repr(at.read(HABITS[habit](whole))) == repr(at.read(whole))


def capitals(name: str) -> str:
    return name.upper()


def pascal_case(name: str) -> str:
    return name.title().replace("_", "")


def camel_case(name: str) -> str:
    return name[0] + pascal_case(name)[1:]


@pytest.mark.parametrize("spelt", [capitals, pascal_case, camel_case])
@pytest.mark.parametrize("entrance", [name for name in ENTRANCES if name.startswith(("chat.", "WebSocket"))])
def test_the_names_of_fields_count_in_any_case(entrance: str, spelt: Callable[[str], str]) -> None:
    """ksqlDB writes capitals, C# and Java their own."""
    at = ENTRANCES[entrance]
    whole = each(at.message, lambda value: "whole" if value == HALF else value)
    assert repr(at.read({spelt(name): value for name, value in whole.items()})) == repr(at.read(whole))


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_half_an_emoji_is_read_as_a_replacement_character(entrance: str) -> None:
    at = ENTRANCES[entrance]
    read = repr(at.read(at.message))
    assert "\ud83d" not in read
    assert ("\ufffd" in read) == (HALF in repr(at.message) or "\\ud83d" in repr(at.message))


@pytest.mark.parametrize("entrance", [name for name, at in ENTRANCES.items() if not at.packed and not at.plain])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_json_is_read_in_every_unicode_encoding(entrance: str, encoding: str) -> None:
    at = ENTRANCES[entrance]
    message = each(at.message, lambda value: "退款" if value == HALF else value)
    assert at.decode(json.dumps(message, ensure_ascii=False).encode(encoding)) == at.read(message)


@pytest.mark.parametrize("entrance", [name for name, at in ENTRANCES.items() if not at.packed and not at.plain])
@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress, functools.partial(zlib.compress, level=1)])
def test_compressed_json_is_read_up_to_a_limit(entrance: str, pack: Callable[[bytes], bytes]) -> None:
    at = ENTRANCES[entrance]
    whole = json.dumps(at.message).encode()
    assert at.decode(pack(whole) + b"rest") == at.decode(whole + b"\0") == at.read(at.message)
    with pytest.raises((ProtocolError, *UNREADABLE)):
        at.decode(pack(whole + b" " * 2**24))


ENVELOPES: dict[str, Callable[[Any], Any]] = {
    "CloudEvent": lambda said: {"specversion": "1.0", "id": said.get("id"), "type": said["type"], "data": said},
    "Kafka Connect": lambda said: {"schema": {"type": "struct", "fields": []}, "payload": said},
    "Kafka Connect, text": lambda said: {"schema": {"type": "string"}, "payload": json.dumps(said)},
    "Kafka Connect, bytes": lambda said: {"payload": base64.b64encode(json.dumps(said).encode()).decode()},
    "Debezium": lambda said: {"before": None, "after": said, "source": {"table": "t"}, "op": "c", "ts_ms": 5},
    "Debezium in Connect": lambda said: {"schema": {}, "payload": {"before": None, "after": said, "op": "r"}},
    "outbox": lambda said: {"payload": {"after": {"id": "o1", "type": "Asked", "payload": json.dumps(said)}}},
    "list": lambda said: [said],
    "DMS": lambda said: {"data": said, "metadata": {"operation": "load"}},
    "Maxwell": lambda said: {"database": "d", "table": "t", "type": "insert", "data": said},
    "EventBridge": lambda said: {"detail-type": "Asked", "source": "shop", "detail": said},
    "SNS": lambda said: {"Type": "Notification", "Message": json.dumps(said)},
    "Pub/Sub": lambda said: {"message": {"data": base64.b64encode(json.dumps(said).encode()).decode()}},
    "MassTransit": lambda said: {"messageId": "1", "messageType": ["urn:message:Asked"], "message": said},
}


@pytest.mark.parametrize("envelope", ENVELOPES)
@pytest.mark.parametrize("entrance", [name for name in ENTRANCES if name.startswith("chat.") and "JSON" in name])
def test_a_record_is_read_from_its_envelope(entrance: str, envelope: str) -> None:
    at = ENTRANCES[entrance]
    assert at.read(ENVELOPES[envelope](at.message)) == at.read(at.message)
    assert at.decode(b"\3\0" + bytes(16) + json.dumps(at.message).encode()) == at.read(at.message)


@pytest.mark.parametrize(
    "absent", [b"  ", b"None", b"undefined", b"NULL", b"", b'""', b"null", b"-1", b"\xff\xff\xff\xff"]
)
@pytest.mark.parametrize("name", ["ce_id", "ce_type", "reply-topic", "reply-partition", "deadline-unix-ms"])
def test_a_header_without_a_value_is_absent(name: str, absent: bytes) -> None:
    value = json.dumps({**RECORD, "reply_topic": "chat.replies"}).encode()
    assert open_request(value, {name: absent}) == open_request(value, {})


@pytest.mark.parametrize("entrance", ["WebSocket, JSON", "WebSocket, MessagePack", "gRPC", "chat.request in JSON"])
@pytest.mark.parametrize(
    ("trace", "read"),
    [
        (f"00-{'A' * 32}-{'B' * 16}-01", f"00-{'a' * 32}-{'b' * 16}-01"),
        (f"01-{'a' * 32}-{'b' * 16}-01-later", f"01-{'a' * 32}-{'b' * 16}-01"),
        ("00-1-2-3", None),
        ("b3", None),
    ],
)
def test_a_trace_that_cannot_be_read_costs_no_question(entrance: str, trace: str, read: str | None) -> None:
    at = ENTRANCES[entrance]
    assert at.read({**at.message, "traceparent": trace}).traceparent == read


@pytest.mark.parametrize(
    "tag",
    [
        *("CHAT.REQUEST", "ChatRequest", "chat_request", "com.shop.ChatRequest", "urn:message:Shop:ChatRequest"),
        *("com.shop.chat.request.v1", "chat.request.v2"),
    ],
)
def test_a_messages_type_counts_in_any_spelling(tag: str) -> None:
    """Also in the header."""
    headers = {"ce_type": f" {tag}".encode()}
    assert open_request(json.dumps({**RECORD, "type": tag}).encode(), headers).input == "where is my parcel \ufffd"
    if "." in tag[9:] or ":" in tag:
        return
    said = json.dumps({**ASKS, "type": tag.lower().replace("request", "create").replace("chat", "response")})
    assert codec.client_decoder(text=True)(said) == codec.client_decoder(text=True)(json.dumps(ASKS))


ROLES = {"user": ("User", "human"), "assistant": ("ASSISTANT", "ai", "bot", "model"), "system": ("Developer",)}


@pytest.mark.parametrize(("role", "word"), [(role, word) for role, words in ROLES.items() for word in words])
def test_roles_of_other_interfaces_are_recognised(role: str, word: str) -> None:
    """At both doors that accept messages; an empty answer at their end is ignored."""

    def asked(word: str) -> tuple[Any, Any]:
        said = [{"role": word, "content": ["a"]}, {"role": "user", "content": [{"type": "Text", "text": "hi"}]}]
        messages = [*said, {"role": "assistant", "content": ""}]
        chat = chat_question(json.dumps({"model": "m", "messages": messages}).encode(), None)
        page = ai_sdk_question(json.dumps({"id": "c", "trigger": "submit-user-message", "messages": messages}).encode())
        return (chat.input, chat.turns, chat.system), (page.input, page.turns, page.system)

    assert asked(word) == asked(role)


def test_a_reply_partition_of_minus_1_means_none() -> None:
    """Kafka's clients write an unknown one like this."""
    assert open_request(json.dumps({**RECORD, "reply_partition": -1}).encode(), {}).reply_partition is None
    names = names_in(json.dumps({**RECORD, "reply_partition": -1, "input": ""}).encode(), {}, None)
    assert names is not None
    assert names.reply_partition is None


def test_a_field_named_like_an_envelope_is_none() -> None:
    read = open_request(json.dumps({**RECORD, "max_output_tokens": "75", "payload": {"a": 1}}).encode(), {})
    assert read == open_request(json.dumps(RECORD).encode(), {})


@pytest.mark.parametrize("entrance", ["WebSocket, JSON", "WebSocket, MessagePack", "chat.request in JSON"])
@pytest.mark.parametrize(
    "parts",
    [
        ["it ", "broke"],
        [{"type": "image_url", "image_url": {"url": "data:"}}, {"text": "it broke"}],
        [{"type": "input_text", "text": "it broke"}],
        {"type": "text", "text": "it broke"},
    ],
)
def test_a_text_may_come_in_parts(entrance: str, parts: Any) -> None:
    at = ENTRANCES[entrance]
    assert at.read({**at.message, "input": parts}) == at.read({**at.message, "input": "it broke"})


@pytest.mark.parametrize("entrance", ["WebSocket, JSON", "WebSocket, MessagePack", "chat completions", "responses"])
def test_metadata_of_any_form_is_text(entrance: str) -> None:
    at = ENTRANCES[entrance]
    whole = each(at.message, lambda value: "whole" if value == HALF else value)
    given: dict[str, Any] = {"shop": 7, "cart": {"size": 2}, "tags": ["a"]}
    read = at.read({**whole, "metadata": given})
    assert read.metadata == {"shop": "7", "cart": '{"size": 2}', "tags": '["a"]'}
    assert at.read({**whole, "metadata": json.dumps(given)}) == read


@pytest.mark.parametrize("entrance", ["WebSocket, JSON", "WebSocket, MessagePack", "gRPC"])
def test_harmless_parameters_are_read_as_they_are_meant(entrance: str) -> None:
    at = ENTRANCES[entrance]
    read = at.read({**at.message, "top_p": 0, "seed": -1, "max_output_tokens": -1, "temperature": 1})
    assert (read.seed, read.max_output_tokens, read.temperature) == (None, None, 1.0)
    assert 0 < read.top_p < 0.001


def test_half_an_emoji_in_protobuf_is_read_as_a_replacement_character() -> None:
    """C++ and other clients write a text's content type."""
    data = v1.RespondRequest(input="abc###").SerializeToString().replace(b"###", b"\xed\xa0\xbd")
    assert read_protobuf(data, v1.RespondRequest)["input"] == "abc\ufffd"


@pytest.mark.parametrize("entrance", ["WebSocket, JSON", "WebSocket, MessagePack", "gRPC"])
def test_a_fraction_of_a_millisecond_is_dropped_and_every_seed_is_one(entrance: str) -> None:
    at = ENTRANCES[entrance]
    read = at.read({**at.message, "deadline_ms": 9_000.4, "seed": -5, "stop": ["", "END", None]})
    assert (read.deadline_ms, read.stop) == (9_000, ("END",))
    assert 0 < read.seed != at.read({**at.message, "seed": -6}).seed


@pytest.mark.parametrize(
    ("locale", "language"), [("zh-TW", "zh"), ("zh_Hans", "zh"), ("en-GB", "en"), ("de", "en"), ("EN", "en")]
)
@pytest.mark.parametrize("entrance", ["WebSocket, JSON", "WebSocket, MessagePack"])
def test_a_wish_for_a_person_is_read_in_any_locale(entrance: str, locale: str, language: str) -> None:
    assert ENTRANCES[entrance].read({"type": "handoff.request", "language": locale}).language == language


@pytest.mark.parametrize("name", ["_V1StGXR8_Z5jdHi6B-myT", "-V1StGXR8_Z5jdHi6B_myT"])
@pytest.mark.parametrize("entrance", ["WebSocket, JSON", "WebSocket, MessagePack", "gRPC", "chat.request in JSON"])
def test_ids_may_begin_as_nanoids_do(entrance: str, name: str) -> None:
    at = ENTRANCES[entrance]
    field = "id" if "id" in at.message else "event_id"
    assert getattr(at.read({**at.message, field: name}), field) == name


@pytest.mark.parametrize(
    "changed",
    [
        {"message_type": 0},
        {"message_type": "INCOMING"},
        *({"conversation": {"id": 7, "status": s}} for s in (2, "Pending")),
    ],
)
def test_an_event_of_chatwoot_is_read_by_word_or_number(changed: dict[str, Any]) -> None:
    at = ENTRANCES["Chatwoot"]
    assert at.read({**at.message, **changed}) == at.read(at.message) is not None


def test_words_are_read_in_capitals() -> None:
    feedback = {"type": "feedback", "response_id": "r1", "rating": "UP", "reason": "OFF_TOPIC"}
    read: Any = codec.client_decoder(text=True)(json.dumps(feedback))
    assert (read.rating, read.reason) == ("up", "off_topic")


BOXES: dict[str, Callable[[Any], Any]] = {
    "Avro": lambda value: {"string": value} if isinstance(value, str) else {"long": value},
    "MongoDB": lambda value: value if isinstance(value, str) else {"$numberLong": str(value)},
    "OpenAI's assistants": lambda value: {"value": value, "annotations": []},
}


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("entrance", ["WebSocket, JSON", "WebSocket, MessagePack", "gRPC", "chat.request in JSON"])
def test_a_value_is_taken_out_of_its_serializers_box(entrance: str, box: str) -> None:
    at = ENTRANCES[entrance]
    whole = each(at.message, lambda value: "whole" if value == HALF else value)
    assert at.read({name: value if name == "type" else each(value, BOXES[box]) for name, value in whole.items()}) == (
        at.read(whole)
    )


@pytest.mark.parametrize("entrance", ["WebSocket, JSON", "WebSocket, MessagePack", "gRPC", "chat completions"])
def test_a_zero_for_a_number_that_was_not_set_is_absent(entrance: str) -> None:
    """Go and protocol buffers of version 3 write it."""
    at = ENTRANCES[entrance]
    zeros: dict[str, Any] = dict.fromkeys(("max_output_tokens", "max_tokens", "deadline_ms", "first_token_ms"), 0)
    left = {name: value for name, value in at.message.items() if name not in zeros}
    assert at.read(left | zeros) == at.read(left)


def test_a_record_of_1970_has_no_times() -> None:
    times = dict.fromkeys(("created_unix_ms", "deadline_unix_ms", "first_token_unix_ms"), 0)
    assert open_request(json.dumps(RECORD | times).encode(), {"deadline-unix-ms": b"0"}) == (
        open_request(json.dumps(RECORD).encode(), {})
    )


@pytest.mark.parametrize("entrance", ["WebSocket, JSON", "WebSocket, MessagePack", "gRPC"])
@pytest.mark.parametrize(("age", "read"), [(12.7, 12), (-5, 0), (-0.25, 0), ("80.5", 80)])
def test_the_age_of_a_cursor_is_read_as_browsers_count_it(entrance: str, age: Any, read: int) -> None:
    said: dict[str, Any] = {"resume": {"cursor": "c", "age_ms": age}}
    at = ENTRANCES[entrance]
    message = client_message({"session_start": said}) if at.plain else at.read({"type": "session.start", **said})
    assert message.resume.age_ms == read  # type: ignore[union-attr]


@pytest.mark.parametrize("entrance", ["WebSocket, JSON", "WebSocket, MessagePack", "gRPC", "chat completions"])
def test_the_largest_integers_of_a_language_mean_no_limit(entrance: str) -> None:
    """`Long.MAX_VALUE` of Java."""
    at = ENTRANCES[entrance]
    fields = (
        ("max_tokens",) if entrance == "chat completions" else ("max_output_tokens", "deadline_ms", "first_token_ms")
    )
    read = at.read({**at.message, **dict.fromkeys(fields, 2**63 - 1)})
    assert {getattr(read, name) for name in fields} == {MAX_INTEGER}


@pytest.mark.parametrize("unset", ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00", -62_135_596_800_000, -1])
def test_a_time_that_was_not_set_is_absent(unset: Any) -> None:
    """Go and .NET write the first moment of their calendar."""
    times = dict.fromkeys(("created_unix_ms", "deadline_unix_ms", "first_token_unix_ms"), unset)
    headers = {"deadline-unix-ms": str(unset).encode()} if isinstance(unset, str) else {}
    assert open_request(json.dumps(RECORD | times).encode(), headers) == open_request(json.dumps(RECORD).encode(), {})


@pytest.mark.parametrize("entrance", ["WebSocket, JSON", "WebSocket, MessagePack", "gRPC"])
def test_a_clients_long_name_costs_no_session(entrance: str) -> None:
    at = ENTRANCES[entrance]

    def started(**said: Any) -> Any:
        return client_message({"session_start": said}) if at.plain else at.read({"type": "session.start", **said})

    assert started(client={"name": "x" * 300, "version": 3}) == started(client={"name": "x" * 64, "version": "3"})
    assert started(consent={"training": "no"}) == started(consent={"training": False})


@pytest.mark.parametrize(
    "broken",
    ['"input": "where is', '"input": "a",}', '"input": "a" // note\n}', '"max_output_tokens": 0x4b}', "'input': 'a'}"],
)
@pytest.mark.parametrize("form", ["{}", "\ufeff{}", "[{}"])
def test_a_record_that_breaks_off_still_names_its_asker(broken: str, form: str) -> None:
    beginning = (
        '{ "type": "chat.request", "metadata": {"id": "m"}, "id": "r1",\n"SessionId": "s1", "reply_topic": "t", '
    )
    value = form.replace("{}", beginning + broken).encode()
    with pytest.raises(ProtocolError):
        open_request(value, {})
    names = names_in(value, {}, None)
    assert names is not None
    assert (names.id, names.session_id, names.reply_topic) == ("r1", "s1", "t")


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_name_an_asker_or_none(data: bytes) -> None:
    for value in (data, b"{" + data, b'{"id": "r1", ' + data):
        names_in(value, {}, None)


def test_a_record_is_read_in_utf_16_and_from_a_packed_list() -> None:
    read = open_request(json.dumps(RECORD).encode(), {})
    whole = msgspec.json.decode(msgspec.json.encode(read))
    assert open_request(json.dumps(whole).encode("utf-16-be"), {}) == read
    assert open_request(msgspec.msgpack.encode([whole]), {}) == read
