"""Encode and decode messages as JSON and MessagePack, with errors that name the field and the remedy."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, cast

import msgspec
from msgspec import Struct

from shared.errors import ProtocolError
from shared.wire.fields import MAX_ID_CHARS, PATTERN_WORDS
from shared.wire.lenient import UNREADABLE, lenient_decoder, lenient_json, lenient_msgpack, read_record
from shared.wire.messages import (
    CLIENT_TYPES,
    ChatRequest,
    ClientMessage,
    Erase,
    Forgotten,
    Notice,
    PeopleRecord,
    Reply,
    ServerMessage,
)
from shared.wire.outcome import Message
from shared.wire.reports import Observation, WorkerReport
from shared.wire.scaling import DemandReport, ScalingRecord

T = TypeVar("T")

JSON: Final = "application/json"
MSGPACK: Final = "application/msgpack"

_NOT_EMPTY: Final = re.compile(r"of length >= 1(?!\d)")
_PATH = re.compile(r" - at (?:`key` in )?`\$\.?(.*)`$")


class _Head(Struct):
    """The fields of a client's message that an error refers to."""

    type: Any = None
    event_id: Any = None


_head_from_json = lenient_json(_Head)
_head_from_msgpack = lenient_msgpack(_Head)


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """One encoding of one direction. `name` is the WebSocket subprotocol or the Kafka content type."""

    name: str
    is_text: bool
    encode: Callable[[Message], bytes]
    decode: Callable[[Any], T]


def client_decoder(*, text: bool) -> Callable[[bytes | str], ClientMessage]:
    """Return a decoder of client messages. It raises `ProtocolError`."""
    decode: Callable[[bytes | str], ClientMessage] = (lenient_json if text else lenient_msgpack)(ClientMessage)
    head = _head_from_json if text else _head_from_msgpack
    malformed = "bad_json" if text else "bad_msgpack"

    def decode_client(data: bytes | str) -> ClientMessage:
        try:
            return decode(data)
        except msgspec.ValidationError as error:
            raise _explain(error, head, data) from None
        except UNREADABLE as error:
            form = "JSON" if text else "MessagePack"
            raise ProtocolError(malformed, f"not valid {form}: {error}; send one object a message") from None

    return decode_client


def _explain(error: msgspec.ValidationError, head: Callable[[Any], _Head], data: bytes | str) -> ProtocolError:
    """Convert msgspec's error to the protocol's: which field of which message, and what was expected."""
    try:
        said = head(data)
    except UNREADABLE:
        return ProtocolError("invalid_field", "a message is one object with a `type`", param="type")
    kind, event_id = said.type, said.event_id
    event_id = event_id if isinstance(event_id, str) and len(event_id) <= MAX_ID_CHARS else None
    if kind is None or (isinstance(kind, str) and kind not in CLIENT_TYPES):
        known = ", ".join(sorted(CLIENT_TYPES))
        why = f"unknown message type {_short(kind)}; known: {known}"
        return ProtocolError("unknown_type", why, param="type", event_id=event_id)
    return field_error(error, kind if isinstance(kind, str) else "type", event_id=event_id)


def field_error(error: msgspec.ValidationError, what: str, *, event_id: str | None = None) -> ProtocolError:
    """Return the protocol's error for a missing or wrong field of `what`: which field, and what was expected."""
    expected, param = read_validation_error(error)
    return ProtocolError("invalid_field", f"{what}: {expected}", param=param, event_id=event_id)


def read_validation_error(error: msgspec.ValidationError) -> tuple[str, str | None]:
    """Return what msgspec's error expected, and the field that it concerns; None for the whole message."""
    message = str(error)
    found = _PATH.search(message)
    missing = re.search(r"required field `(\w+)`", message)
    param = missing.group(1) if missing else found.group(1) if found and found.group(1) else None
    expected = _NOT_EMPTY.sub("that is not empty", _cut(_PATH.sub("", message), 200))
    for pattern, words in PATTERN_WORDS.items():
        expected = expected.replace(f"matching regex {pattern!r}", words)
    if param is None or missing:
        return expected, param
    return f"`{_cut(param, 80)}`: {expected[:1].lower()}{expected[1:]}", param


def _short(value: object) -> str:
    return _cut(repr(value), 40)


def _cut(text: str, limit: int) -> str:
    """Shorten a client's text for use in an error message."""
    return text if len(text) <= limit else text[:limit] + "…"


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


def record_decoder(kind: type[T] | Any, what: str) -> Callable[[bytes | None], T]:
    """Return a decoder of records in any form that `read_record` accepts. It raises `ProtocolError` for anything
    else."""
    from_json, from_msgpack = msgspec.json.Decoder(kind).decode, msgspec.msgpack.Decoder(kind).decode

    def strict(value: bytes) -> T:
        return cast(T, from_json(value) if value[:1] == b"{" else from_msgpack(value))

    decode: Callable[[bytes], T] = lenient_decoder(kind, strict, read_record)

    def decode_record(value: bytes | None) -> T:
        try:
            return decode(value or b"")
        except UNREADABLE as error:
            raise ProtocolError("invalid_record", f"{what} in MessagePack or JSON: {error}") from None

    return decode_record


decode_request: Final[Callable[[bytes | None], ChatRequest]] = record_decoder(ChatRequest, "not a chat.request")
decode_reply: Final[Callable[[bytes | None], Reply]] = record_decoder(Reply, "not a reply")
decode_notice: Final[Callable[[bytes | None], Notice]] = record_decoder(
    Notice, "neither a chat.cancel nor a chat.adopt"
)
decode_erase: Final[Callable[[bytes | None], Erase]] = record_decoder(Erase, "not a chat.erase")
decode_people: Final[Callable[[bytes | None], PeopleRecord]] = record_decoder(
    PeopleRecord, "none of people.move, people.said, chat.erase"
)
decode_forgotten: Final[Callable[[bytes | None], Forgotten]] = record_decoder(Forgotten, "not a chat.forgotten")
decode_observation: Final[Callable[[bytes | None], Observation]] = record_decoder(Observation, "not a chat.observation")
decode_report: Final[Callable[[bytes | None], WorkerReport]] = record_decoder(WorkerReport, "not a chat.worker")
decode_demand: Final[Callable[[bytes | None], DemandReport]] = record_decoder(DemandReport, "not a chat.demand")
decode_scaling: Final[Callable[[bytes | None], ScalingRecord]] = record_decoder(ScalingRecord, "not a chat.scaling")
