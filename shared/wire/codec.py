"""Bytes to messages and back: JSON and MessagePack, with errors that name the field and the remedy."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from shared.errors import ProtocolError
from shared.wire.fields import PATTERN_WORDS
from shared.wire.messages import (
    CLIENT_TYPES,
    ChatRequest,
    ClientMessage,
    Erase,
    Notice,
    Observation,
    Reply,
    ServerMessage,
    WorkerReport,
)
from shared.wire.outcome import Message
from shared.wire.scaling import DemandReport, ScalingRecord

T = TypeVar("T")

JSON: Final = "application/json"
MSGPACK: Final = "application/msgpack"

_PATH = re.compile(r" - at (?:`key` in )?`\$\.?(.*)`$")

# What msgspec raises for bytes that are no message: a wrong form, text that is not UTF-8, nesting without end.
_UNREADABLE = (msgspec.DecodeError, UnicodeError, RecursionError)


class _Head(Struct):
    """The part of a client's message that an error can be pinned to."""

    type: Any = None
    event_id: Any = None


_head_from_json = msgspec.json.Decoder(_Head).decode
_head_from_msgpack = msgspec.msgpack.Decoder(_Head).decode


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """One encoding of one direction. `name` is the WebSocket subprotocol or the Kafka content type."""

    name: str
    is_text: bool
    encode: Callable[[Message], bytes]
    decode: Callable[[Any], T]


def client_decoder(*, text: bool) -> Callable[[bytes | str], ClientMessage]:
    """Return a decoder of client messages that raises `ProtocolError` with `event_id` where the client gave one."""
    decode: Callable[[Any], ClientMessage] = (
        msgspec.json.Decoder(ClientMessage).decode if text else msgspec.msgpack.Decoder(ClientMessage).decode
    )
    head = _head_from_json if text else _head_from_msgpack
    malformed = "bad_json" if text else "bad_msgpack"

    def decode_client(data: bytes | str) -> ClientMessage:
        try:
            return decode(data)
        except msgspec.ValidationError as error:
            raise _explain(error, head, data) from None
        except _UNREADABLE as error:
            form = "JSON" if text else "MessagePack"
            raise ProtocolError(malformed, f"not valid {form}: {error}; send one object a message") from None

    return decode_client


def _explain(error: msgspec.ValidationError, head: Callable[[Any], _Head], data: bytes | str) -> ProtocolError:
    """Turn msgspec's message into the protocol's: which field, what was expected."""
    try:
        kind = head(data).type
    except _UNREADABLE:
        return ProtocolError("invalid_field", "a message is one object with a `type`", param="type")
    if kind is None or (isinstance(kind, str) and kind not in CLIENT_TYPES):
        known = ", ".join(sorted(CLIENT_TYPES))
        return ProtocolError("unknown_type", f"unknown message type {_short(kind)}; known: {known}", param="type")
    return field_error(error, kind if isinstance(kind, str) else "type")


def field_error(error: msgspec.ValidationError, what: str) -> ProtocolError:
    """Return the protocol's error for a field of `what` that is missing or wrong: which one, what was expected."""
    expected, param = read_validation_error(error)
    return ProtocolError("invalid_field", f"{what}: {expected}", param=param)


def read_validation_error(error: msgspec.ValidationError) -> tuple[str, str | None]:
    """Return what msgspec's error says and the field that it is about, None where that is the whole."""
    message = str(error)
    found = _PATH.search(message)
    missing = re.search(r"required field `(\w+)`", message)
    param = missing.group(1) if missing else found.group(1) if found and found.group(1) else None
    expected = _cut(_PATH.sub("", message), 200)
    for pattern, words in PATTERN_WORDS.items():
        expected = expected.replace(f"matching regex {pattern!r}", words)
    if param is None or missing:
        return expected, param
    return f"`{_cut(param, 80)}`: {expected[:1].lower()}{expected[1:]}", param


def _short(value: object) -> str:
    return _cut(repr(value), 40)


def _cut(text: str, limit: int) -> str:
    """Return a client's text cut short: it may stand in what the client is told, but not all of it."""
    return text if len(text) <= limit else text[:limit] + "…"


def event_id_of(data: bytes | str, *, text: bool) -> str | None:
    """Return the `event_id` of a message that could not be decoded, so that its error finds its sender's request."""
    if isinstance(data, str) and not text:
        return None  # a text frame where MessagePack is spoken
    try:
        value = (_head_from_json if text else _head_from_msgpack)(data).event_id  # type: ignore[arg-type]
    except _UNREADABLE:
        return None
    return value if isinstance(value, str) and len(value) <= 64 else None  # noqa: PLR2004 - the protocol's bound


json_encode: Final = msgspec.json.Encoder().encode
msgpack_encode: Final = msgspec.msgpack.Encoder().encode

GATEWAY_CODECS: Final[dict[str, Codec[ClientMessage]]] = {
    "chat.v1.json": Codec("chat.v1.json", True, json_encode, client_decoder(text=True)),
    "chat.v1.msgpack": Codec("chat.v1.msgpack", False, msgpack_encode, client_decoder(text=False)),
}
CLIENT_CODECS: Final[dict[str, Codec[ServerMessage]]] = {
    "chat.v1.json": Codec("chat.v1.json", True, json_encode, msgspec.json.Decoder(ServerMessage).decode),
    "chat.v1.msgpack": Codec("chat.v1.msgpack", False, msgpack_encode, msgspec.msgpack.Decoder(ServerMessage).decode),
}

_request_decoders: Final[dict[str, Callable[[bytes], ChatRequest]]] = {
    MSGPACK: msgspec.msgpack.Decoder(ChatRequest).decode,
    JSON: msgspec.json.Decoder(ChatRequest).decode,
}


def decode_request(value: bytes | None, content_type: str = MSGPACK) -> ChatRequest:
    """Return a record's `ChatRequest`, by its content type. Raises `ProtocolError` for anything else."""
    if value is None:
        raise ProtocolError("invalid_record", "the record has no value; write a chat.request")
    decode = _request_decoders.get(content_type.partition(";")[0].strip().lower())
    if decode is None:
        raise ProtocolError("invalid_record", f"content-type {_short(content_type)}; write {MSGPACK} or {JSON}")
    try:
        return decode(value)
    except _UNREADABLE as error:
        raise ProtocolError("invalid_record", f"not a chat.request ({content_type}): {error}") from None


def record_decoder(decode: Callable[[bytes], T], what: str) -> Callable[[bytes | None], T]:
    """Return a decoder of records that raises `ProtocolError` for anything else."""

    def decode_record(value: bytes | None) -> T:
        try:
            return decode(value or b"")
        except _UNREADABLE as error:
            raise ProtocolError("invalid_record", f"{what}: {error}") from None

    return decode_record


decode_reply: Final[Callable[[bytes | None], Reply]] = record_decoder(
    msgspec.msgpack.Decoder(Reply).decode, "not a reply"
)
decode_notice: Final[Callable[[bytes | None], Notice]] = record_decoder(
    msgspec.msgpack.Decoder(Notice).decode, "neither a chat.cancel nor a chat.adopt"
)
decode_erase = record_decoder(msgspec.msgpack.Decoder(Erase).decode, "not a chat.erase")
decode_observation = record_decoder(msgspec.msgpack.Decoder(Observation).decode, "not a chat.observation")
decode_report = record_decoder(msgspec.msgpack.Decoder(WorkerReport).decode, "not a chat.worker")
decode_demand = record_decoder(msgspec.msgpack.Decoder(DemandReport).decode, "not a chat.demand")
decode_scaling = record_decoder(msgspec.msgpack.Decoder(ScalingRecord).decode, "not a chat.scaling")
