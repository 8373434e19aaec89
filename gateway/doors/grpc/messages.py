"""Convert between Protobuf messages and wire messages by the names of their fields. Pure.

An enum's value is the enum's name followed by the wire's word in capitals. Unset fields are omitted.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Final, TypeVar, cast

import msgspec
from google.protobuf.descriptor import Descriptor, EnumDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Protobuf
from google.protobuf.message_factory import GetMessageClass

from gateway.doors.grpc.replyline.v1 import replyline_pb2 as v1
from shared.errors import ProtocolError
from shared.wire.codec import field_error
from shared.wire.lenient import lenient_convert, text_of
from shared.wire.messages import ClientMessage, ResponseDelta, ServerMessage
from shared.wire.outcome import Message

WireT = TypeVar("WireT", bound=Message)

_WORDS: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


def read(data: bytes, kind: type[Protobuf]) -> dict[str, Any]:
    """Return the fields in a request's bytes. Raises `ProtocolError`."""
    with suppress(DecodeError):
        return _fields_of(kind.FromString(data))
    try:
        found: dict[str, Any] = _as_texts(_fields_of(_with_bytes(kind.DESCRIPTOR).FromString(data)))
    except DecodeError:
        raise ProtocolError("bad_protobuf", f"not a {kind.DESCRIPTOR.full_name}") from None
    return found


def _as_texts(said: Any) -> Any:
    """Return these fields with texts in place of bytes."""
    if isinstance(said, dict):
        return {name: _as_texts(value) for name, value in said.items()}
    if isinstance(said, list):
        return [_as_texts(each) for each in said]
    return text_of(said) if isinstance(said, bytes) else said


@cache
def _with_bytes(kind: Descriptor) -> Any:
    """Return a class for the same messages with bytes in place of texts, for clients that send other text than UTF-8:
    protobuf refuses the whole message for one. A map's keys remain texts."""
    file, pool = FileDescriptorProto(), DescriptorPool()
    kind.file.CopyToProto(file)
    found = [*file.message_type]
    for message in found:
        found += message.nested_type
        for field in message.field[message.options.map_entry :]:
            if field.type == field.TYPE_STRING:
                field.type = field.TYPE_BYTES
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(kind.full_name))


def checked(fields: Mapping[str, Any], kind: type[WireT]) -> WireT:
    """Return the wire message with these fields. Raises `ProtocolError`."""
    try:
        return cast(WireT, lenient_convert(fields, kind))
    except msgspec.ValidationError as error:
        raise field_error(error, kind.__name__) from None


def client_message(said: Mapping[str, Any]) -> ClientMessage:
    """Return the client's message in fields returned by `read`. Raises `ProtocolError`."""
    for name, fields in said.items():
        try:
            message: ClientMessage = lenient_convert({"type": name.replace("_", "."), **fields}, ClientMessage)
        except msgspec.ValidationError as error:
            raise field_error(error, name) from None
        return message
    raise ProtocolError("unknown_type", "set one of a ClientMessage's messages", param="message")


def server_bytes(message: ServerMessage) -> bytes:
    return _delta(message) if isinstance(message, ResponseDelta) else _any(message)


def _delta(message: ResponseDelta) -> bytes:
    """Encode a piece of an answer's text. Its fields are assigned one by one, which takes a quarter of the time of
    `_any`, which loops over the fields of any message; most messages are pieces of text."""
    told = v1.ServerMessage()
    delta = told.response_output_text_delta
    delta.response_id = message.response_id
    delta.seq = message.seq
    delta.offset = message.offset
    delta.delta = message.delta
    delta.cursor = message.cursor
    data: bytes = told.SerializeToString()
    return data


def _any(message: ServerMessage) -> bytes:
    member = str(message.__struct_config__.tag).replace(".", "_")
    descriptor = v1.ServerMessage.DESCRIPTOR.fields_by_name[member].message_type
    data: bytes = v1.ServerMessage(**{member: _values_of(message, descriptor)}).SerializeToString()
    return data


def _fields_of(message: Protobuf) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.is_repeated:
            if field.message_type is None:
                value = list(value)
            elif field.message_type.GetOptions().map_entry:
                value = dict(value)
            else:
                value = [_fields_of(each) for each in value]
            if value:
                found[field.name] = value
        elif field.has_presence and not message.HasField(field.name):
            continue
        elif field.message_type is not None:
            found[field.name] = _fields_of(value)
        elif field.enum_type is None:
            found[field.name] = value
        elif value:
            found[field.name] = _word_of(value, field.enum_type)
    return found


def _word_of(number: int, enum: EnumDescriptor) -> str:
    known = enum.values_by_number.get(number)
    return str(number) if known is None else known.name.removeprefix(_prefix(enum)).lower()


def _values_of(message: Message, descriptor: Descriptor) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in descriptor.fields:
        value = getattr(message, field.name)
        if value is None:
            continue
        if field.enum_type is not None:
            value = _prefix(field.enum_type) + value.upper()
        elif field.message_type is not None and field.is_repeated:
            value = [_values_of(each, field.message_type) for each in value]
        elif field.message_type is not None:
            value = _values_of(value, field.message_type)
        found[field.name] = value
    return found


def _prefix(enum: EnumDescriptor) -> str:
    return _WORDS.sub("_", enum.name).upper() + "_"
