"""At every entrance a message reads the same as other serializers write it: one table of entrances, one of habits."""

import base64
import functools
import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from gateway.http.headers import traceparent
from shared.errors import ProtocolError
from shared.wire import codec, lenient
from shared.wire.lenient import UNREADABLE
from shared.wire.requests import open_request
from tests.unit.gateway.entrances.table import (
    ASKS,
    ENTRANCES,
    HALF,
    RECORD,
    each,
)


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


def two_members(data: bytes) -> bytes:
    return gzip.compress(data[:9]) + gzip.compress(data[9:])


@pytest.mark.parametrize("entrance", [name for name, at in ENTRANCES.items() if not at.packed and not at.plain])
@pytest.mark.parametrize("pack", [gzip.compress, two_members, zlib.compress, functools.partial(zlib.compress, level=1)])
def test_compressed_json_is_read_up_to_a_limit(entrance: str, pack: Callable[[bytes], bytes]) -> None:
    at = ENTRANCES[entrance]
    whole = json.dumps(at.message).encode()
    assert at.decode(pack(whole) + b"rest") == at.decode(whole + b"\0") == at.read(at.message)
    for spaces in (2**17, 2**24):  # a kilobyte of a client's must not cost what 64 of them do
        if spaces < 2**20 and entrance.endswith("in JSON"):
            assert at.decode(pack(whole + b" " * spaces)) == at.read(at.message)
            continue
        with pytest.raises((ProtocolError, *UNREADABLE)):
            at.decode(pack(whole + b" " * spaces))


@pytest.mark.parametrize("entrance", ["WebSocket, JSON", "WebSocket, MessagePack", "gRPC", "chat.request in JSON"])
@pytest.mark.parametrize(
    "items",
    [{"turns": ["{}"] * 9_000}, {"stop": [1] * 9_000}, {"metadata": {str(n): n for n in range(9_000)}}],
    ids=list,
)
def test_more_items_than_a_field_takes_are_not_converted(
    monkeypatch: pytest.MonkeyPatch, entrance: str, items: dict[str, Any]
) -> None:
    fit, converted = lenient._fit, list[Any]()

    def counted(said: Any, wanted: Any) -> Any:
        converted.append(said)
        return fit(said, wanted)

    monkeypatch.setattr(lenient, "_fit", counted)
    at = ENTRANCES[entrance]
    with pytest.raises(ProtocolError):
        at.read({**at.message, **items})
    assert len(converted) < 200


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
    assert traceparent({"traceparent": trace}) == read, "the header of HTTP, and a gRPC call's metadata"


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
