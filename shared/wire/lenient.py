"""Decode what other serializers write. Pure.

Input that the strict decoder accepts has no extra cost. Other input is decoded again and converted to the wanted type:
`null` is absent, `75.0` and `"75"` are 75, a number may replace its text, a single value a list, `[]` an empty map,
Avro's and MongoDB's boxes are opened, names match in any case, and U+FFFD replaces text that is not Unicode. What is
still wrong is rejected. docs/protocol.md lists what is accepted.
"""

import json
import math
import re
from base64 import b64decode
from collections.abc import Callable, Sized
from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec import inspect

from shared.wire.compressed import inflated
from shared.wire.headers import plain_name

Decode = Callable[[Any], Any]

# raised for bytes that are not a message: a wrong format, invalid UTF-8, endless nesting
UNREADABLE: Final = (msgspec.DecodeError, ValueError, RecursionError)

_TAKES: Final[dict[type, tuple[type, ...]]] = {
    dict: (inspect.StructType, inspect.DictType),
    list: (inspect.ListType, inspect.VarTupleType),
    bool: (inspect.BoolType,),
    int: (inspect.IntType, inspect.FloatType),
    float: (inspect.FloatType, inspect.IntType),
    str: (inspect.StrType, inspect.LiteralType),
}
_NO_NUMBERS: Final = frozenset(("nan", "infinity", "-infinity", "inf", "-inf"))  # as texts in protobuf's JSON
_BOOLEANS: Final = dict.fromkeys(("true", "1", "yes", "on"), True) | dict.fromkeys(("false", "0", "no", "off"), False)
_MOST_MENDED: Final = 64  # texts in one MessagePack message
_MOST_DIGITS: Final = 40
_LARGEST: Final = 1e308
# Prefixes of Confluent's and AWS Glue's serializers before the value, with their sizes in bytes.
_SCHEMAS: Final = {b"\0": 5, b"\x03\0": 18}
_MOST_ENVELOPES: Final = 4
_EVENT_INNER: Final = ("data", "database64")
_INNER: Final = ("payload", "after", "data", "detail", "message", "body", "value")
_NO_ENVELOPES: Final = ("input", "sessionid")
_DEFLATED: Final = (b"\x1f\x8b", b"x\x01", b"x\x5e", b"x\x9c", b"x\xda")  # gzip, and the levels of zlib
# A kilobyte may inflate a thousandfold, and a message without compression has these bytes at most.
_MOST_INFLATED_BYTES: Final = 64 * 1_024
_MOST_RECORD_BYTES: Final = 1_024 * 1_024
_MOST_BEGINNING_BYTES: Final = 64 * 1_024
# first bytes of a MessagePack map, or of a list of one; no JSON begins with one
_MAPS: Final = frozenset((*range(0x80, 0x90), 0x91, 0xDE, 0xDF))
_UTF_16: Final = (b"\0{", b"\0[")  # without a byte order mark
# Avro's JSON for a value of a union, MongoDB's for a number or time, OpenAI's assistants' for a text.
_BOXES: Final = frozenset(
    (
        *("string", "int", "long", "float", "double", "boolean", "bytes", "array", "value"),
        *("$numberInt", "$numberLong", "$numberDouble", "$date"),
    )
)
_BESIDE: Final = {"annotations"}  # next to the text of OpenAI's assistants
_BEFORE_NAME: Final = re.compile(r'\s*[{,]\s*(?=")')
_BEFORE_VALUE: Final = re.compile(r"\s*:\s*")
_NAMESPACE: Final = re.compile(r"[:/]|\.(?=[A-Z])")
_VERSION: Final = re.compile(r"[._-]?v?\d+$")
_read_number: Final = msgspec.json.Decoder(int | float).decode


def lenient_decoder(kind: Any, strict: Callable[[Any], Any], form: Callable[[Any], Any]) -> Decode:
    """Return a decoder of `kind`. It raises one of `UNREADABLE`.

    Args:
        kind: the wanted type.
        strict: the decoder that is tried first.
        form: decodes to plain objects if `strict` fails; these are then converted.
    """
    wanted = inspect.type_info(kind)
    never_short = _without_required(wanted)

    def decode(data: Any) -> Any:
        try:
            said = strict(data)
        except UNREADABLE:
            return msgspec.convert(_fit(form(data), wanted), kind)
        if type(said) not in never_short:
            return said
        try:
            return _completed(said, msgspec.convert(_fit(form(data), wanted), kind))
        except UNREADABLE:
            return said

    return decode


def _without_required(wanted: inspect.Type) -> frozenset[type]:
    """Return the messages without a required field: of these no missing field shows that names are spelt otherwise."""
    kinds = wanted.types if isinstance(wanted, inspect.UnionType) else (wanted,)
    tagged = [each for each in kinds if isinstance(each, inspect.StructType) and each.tag_field is not None]
    return frozenset(each.cls for each in tagged if each.fields and not any(field.required for field in each.fields))


def _completed(said: Any, fitted: Any) -> Any:
    """Return a message with the fitted values of the fields that the strict decoder has not found."""
    absent = [field.name for field in msgspec.structs.fields(said) if getattr(said, field.name) == field.default]
    return msgspec.structs.replace(said, **{name: getattr(fitted, name) for name in absent})


def lenient_json(kind: Any) -> Decode:
    return lenient_decoder(kind, msgspec.json.Decoder(kind).decode, read_json)


def lenient_msgpack(kind: Any) -> Decode:
    return lenient_decoder(kind, msgspec.msgpack.Decoder(kind).decode, read_msgpack)


def lenient_convert(said: Any, kind: Any) -> Any:
    """Convert plain objects to a type.

    Raises:
        msgspec.ValidationError: the conversion is not possible.
    """
    try:
        return msgspec.convert(said, kind)
    except msgspec.ValidationError:
        return msgspec.convert(_fit(said, inspect.type_info(kind)), kind)


# --- bytes to plain objects


def read_json(data: bytes | str) -> Any:
    """Decode JSON in UTF-8, UTF-16 or UTF-32, with or without a byte order mark, compressed or not.

    Raises:
        DecodeError, ValueError, RecursionError: the data cannot be decoded; `UNREADABLE` is all three.
    """
    if not isinstance(data, str):
        data = _inflated(bytes(data), _MOST_INFLATED_BYTES)
    text = data if isinstance(data, str) else text_of(data, json.detect_encoding(data))
    text = well_formed(text).lstrip("\ufeff").rstrip("\0")
    said = _load(text)
    return _load(well_formed(json.dumps(said, ensure_ascii=False))) if "\\u" in text else said


def read_beginning(data: bytes) -> dict[str, Any]:
    """Return the fields of a JSON object before the byte at which it is cut off or is no JSON. Only its first
    `_MOST_BEGINNING_BYTES` are read."""
    text = text_of(data[:_MOST_BEGINNING_BYTES], json.detect_encoding(data)).lstrip("\ufeff[ ")
    fields, decode, at = dict[str, Any](), json.JSONDecoder(strict=False).raw_decode, 0
    with suppress(*UNREADABLE):
        while found := _BEFORE_NAME.match(text, at):
            name, at = decode(text, found.end())
            found = _BEFORE_VALUE.match(text, at)
            fields[name], at = decode(text, found.end() if found else at)
    return fields


def read_msgpack(data: bytes) -> Any:
    """Decode MessagePack; U+FFFD replaces invalid UTF-8 in its strings.

    Raises:
        DecodeError, ValueError, RecursionError: the data cannot be decoded; `UNREADABLE` is all three.
    """
    data = bytes(data)
    for _ in range(_MOST_MENDED):
        try:
            return msgspec.msgpack.decode(data)
        except UnicodeDecodeError as error:
            raw = bytes(error.object)
            head = msgspec.msgpack.encode("a" * len(raw))[: -len(raw)]
            data = data.replace(head + raw, msgspec.msgpack.encode(text_of(raw)))
    return msgspec.msgpack.decode(data)


def read_record(value: bytes) -> Any:
    """Decode a record's value: MessagePack, or JSON, also compressed, encoded twice, behind a schema id, or in an
    envelope.

    Raises:
        DecodeError, ValueError, RecursionError: the data cannot be decoded; `UNREADABLE` is all three.
    """
    value = _inflated(value, _MOST_RECORD_BYTES)
    if not value.startswith(_UTF_16):
        value = value[next((size for mark, size in _SCHEMAS.items() if value.startswith(mark)), 0) :]
    said = read_msgpack(value) if value and value[0] in _MAPS else read_json(value)
    return _out_of_envelopes(read_json(said) if isinstance(said, str) else said)


def _out_of_envelopes(said: Any) -> Any:
    """Return the content of a common envelope, or the value unchanged if it has none.

    Envelopes are a list of one item, a structured CloudEvent, and the fields in which Kafka Connect, Debezium, DMS,
    EventBridge, MassTransit, SNS and Pub/Sub put a value.
    """
    for _ in range(_MOST_ENVELOPES):
        said = said[0] if isinstance(said, list) and len(said) == 1 else said
        named = by_name(said) if isinstance(said, dict) else {}
        event = "specversion" in named
        names = (_EVENT_INNER if event else _INNER) if named.keys().isdisjoint(_NO_ENVELOPES) else ()
        inner = next((named[each] for each in names if isinstance(named.get(each), dict | list | str)), None)
        if inner is None:
            break
        if isinstance(inner, str):
            try:
                inner = read_record(inner.encode() if inner.lstrip()[:1] in ("{", "[", '"') else b64decode(inner))
            except UNREADABLE:
                break
        said = {"id": said.get("id"), "type": said.get("type"), **inner} if event and isinstance(inner, dict) else inner
    return said


def well_formed(text: str) -> str:
    """Join surrogate pairs into their character, and replace single surrogates by U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def text_of(raw: bytes, encoding: str = "utf-8") -> str:
    """Decode bytes; U+FFFD replaces what is no text of that encoding."""
    try:
        return well_formed(raw.decode(encoding, "surrogatepass"))
    except UnicodeDecodeError:
        return raw.decode(encoding, "replace")


def _inflated(data: bytes, most: int) -> bytes:
    """Decompress bytes of gzip or zlib to at most `most` bytes; return other bytes unchanged. Raises `ValueError`."""
    return inflated(data, most) if data.startswith(_DEFLATED) else data


def _load(text: str) -> Any:
    """Decode JSON; line breaks inside strings are accepted, NaN and infinities become null."""
    return json.loads(text, strict=False, parse_constant=lambda _: None, parse_int=_integer)


def _integer(digits: str) -> int | float:
    """Return an integer, or a float if it has too many digits for any field, since parsing it exactly would take too
    long."""
    return int(digits) if len(digits) <= _MOST_DIGITS else max(-_LARGEST, min(float(digits), _LARGEST))


# --- plain objects to what a type takes


def _fit(said: Any, wanted: inspect.Type) -> Any:
    """Convert a value to the wanted type; return it unchanged if that is not possible."""
    while isinstance(said, dict) and not _takes(wanted, said):
        box = said.keys() - _BESIDE
        if len(box) != 1 or not box <= _BOXES:
            break
        said = said[box.pop()]
    fit = _FITS.get(type(wanted))
    return said if fit is None else fit(said, wanted)


def _fit_annotated(said: Any, wanted: inspect.Metadata) -> Any:
    said = _fit(said, wanted.type)
    reads = (wanted.extra or {}).get("reads")
    if reads is None or said is None:  # a worker's measurement that is no number is a fault
        return said
    is_absent = isinstance(wanted.type, inspect.IntType | inspect.FloatType) and _is_no_number(said)
    return None if is_absent else reads(said)


def _is_no_number(said: Any) -> bool:
    if isinstance(said, str):
        return said.strip().lower() in _NO_NUMBERS
    return isinstance(said, float) and not math.isfinite(said)


def _fit_union(said: Any, wanted: inspect.UnionType) -> Any:
    """Convert a value to the union's member that matches it, or could."""
    members: list[Any] = [each for each in wanted.types if not isinstance(each, inspect.NoneType)]
    found = [each for each in members if _takes(each, said)]
    if len(found) > 1 and isinstance(said, dict):
        named = by_name(said)
        tagged = [each for each in found if _tag_in(named, each) == each.tag]
        return _fit(said, tagged[0]) if tagged else said
    lists = [each for each in members if isinstance(each, inspect.ListType) and _takes(each.item_type, said)]
    return _fit(said, (found or lists or members)[0])


def _fit_dict(said: Any, wanted: inspect.DictType) -> Any:
    said = read_json(said) if isinstance(said, str) and said[:1] == "{" else said
    if not isinstance(said, dict):
        return said
    given = {name: value for name, value in said.items() if value is not None}
    if _is_too_long(given, wanted):
        return given
    if isinstance(getattr(wanted.value_type, "type", wanted.value_type), inspect.StrType):
        given = {name: json.dumps(value) if isinstance(value, dict | list) else value for name, value in given.items()}
    fitted = {_fit(name, wanted.key_type): _fit(value, wanted.value_type) for name, value in given.items()}
    return {name: value for name, value in fitted.items() if value is not None}


def _fit_list(said: Any, wanted: Any) -> Any:
    """Convert each item, dropping nulls and invalid empty items; a single value becomes a list of one. A list of
    structs may be JSON text."""
    if isinstance(said, str) and said[:1] == "[" and isinstance(wanted.item_type, inspect.StructType):
        with suppress(*UNREADABLE):
            said = read_json(said)
    items = said if isinstance(said, list) else [said]
    least = getattr(wanted.item_type, "min_length", None)
    items = [each for each in items if each is not None and not (each == "" and least)]
    return items if _is_too_long(items, wanted) else [_fit(each, wanted.item_type) for each in items]


def _is_too_long(items: Sized, wanted: Any) -> bool:
    """Return whether there are more items than the type takes: these are refused, and not worth converting."""
    most = getattr(wanted, "max_length", None)
    return most is not None and len(items) > most


def _fit_struct(said: Any, wanted: inspect.StructType) -> Any:
    """Return the struct's fields in any spelling of their names.

    Nulls are dropped, and so are empty texts, lists and maps of optional fields that have another type. A text is
    parsed as the struct's JSON, or used as the `text` of a part.
    """
    if isinstance(said, str):
        is_part = any(field.encode_name == "text" for field in wanted.fields)
        said = read_json(said) if said[:1] == "{" else {"text": said} if is_part else said
    if not isinstance(said, dict):
        return said
    named = by_name(said)
    fitted: dict[str, Any] = {}
    if wanted.tag_field is not None:
        tag = _tag_in(named, wanted)
        fitted[wanted.tag_field] = wanted.tag if tag is None else tag
    for field in wanted.fields:
        plain = getattr(field.type, "type", field.type)
        value = said.get(field.encode_name, named.get(plain_name(field.encode_name)))
        if not field.required and (value == "" or (value in ([], {}) and not _takes_empty(field.type, value))):
            value = None
        if value is not None:
            value = _fit(value, field.type)
        elif field.required and plain_name(field.encode_name) in named and isinstance(plain, inspect.StrType):
            value = None if plain.min_length else ""
        if value is not None:
            fitted[field.encode_name] = value
    return fitted


def by_name(said: dict[Any, Any]) -> dict[str, Any]:
    """Return a map's values by their names without case and punctuation: `SESSION_ID` and `sessionId` are the same."""
    return {plain_name(name): value for name, value in said.items() if isinstance(name, str)}


def _tag_in(named: dict[str, Any], wanted: inspect.StructType) -> Any:
    """Return the map's tag; a different spelling of the type's tag ("ChatRequest") becomes the type's own."""
    tag = named.get(plain_name(wanted.tag_field or ""))
    return wanted.tag if isinstance(tag, str) and names_type(tag, str(wanted.tag)) else tag


def names_type(said: str, tag: str) -> bool:
    """Return whether a text names a message's type, in any spelling, with a namespace and a version or without."""
    said, wanted = _VERSION.sub("", said), _plain_tag(tag)
    is_namespaced = said.count(".") > 1 and _plain_tag(said).endswith(wanted)
    return is_namespaced or wanted in (_plain_tag(said), _plain_tag(_NAMESPACE.split(said)[-1]))


def _plain_tag(tag: str) -> str:
    return plain_name(tag).replace(".", "")


def _takes(wanted: Any, said: Any) -> bool:
    """Return whether the value has the type, or one of a union's types, or can be converted to it."""
    if isinstance(wanted, inspect.UnionType):
        return any(_takes(each, said) for each in wanted.types)
    return isinstance(getattr(wanted, "type", wanted), _TAKES.get(type(said), ()))


def _takes_empty(wanted: Any, empty: Any) -> bool:
    """Return whether the type takes an empty list or map; a message with required fields does not."""
    kinds = wanted.types if isinstance(wanted, inspect.UnionType) else (wanted,)
    return any(
        _takes(kind, empty) and not any(field.required for field in getattr(kind, "fields", ())) for kind in kinds
    )


def _fit_number(said: Any, wanted: Any = None) -> Any:
    del wanted
    if isinstance(said, str):
        try:
            said = _read_number(said.strip())
        except UNREADABLE:
            return said
    return int(said) if isinstance(said, float) and said.is_integer() else said


def _fit_bool(said: Any, wanted: inspect.BoolType) -> Any:
    del wanted
    return _BOOLEANS.get(str(said).lower(), said)


def _fit_word(said: Any, wanted: inspect.LiteralType) -> Any:
    """Return the wanted word that a value spells in other case or punctuation: `OFF_TOPIC`, `OffTopic`, `off-topic`."""
    plain = _plain_word(said)
    return next((word for word in wanted.values if _plain_word(word) == plain), said)


def _plain_word(word: Any) -> Any:
    return plain_name(word).replace(" ", "") if isinstance(word, str) else word


def _fit_text(said: Any, wanted: inspect.StrType) -> Any:
    del wanted
    if isinstance(said, bytes):
        return text_of(said)
    if isinstance(said, bool):
        return "true" if said else "false"
    if isinstance(said, int | float):
        return None if _is_no_number(said) else str(_fit_number(said))
    return said


_FITS: Final[dict[type[inspect.Type], Callable[[Any, Any], Any]]] = {
    inspect.Metadata: _fit_annotated,
    inspect.UnionType: _fit_union,
    inspect.StructType: _fit_struct,
    inspect.DictType: _fit_dict,
    inspect.ListType: _fit_list,
    inspect.VarTupleType: _fit_list,
    inspect.IntType: _fit_number,
    inspect.FloatType: _fit_number,
    inspect.BoolType: _fit_bool,
    inspect.StrType: _fit_text,
    inspect.LiteralType: _fit_word,
}
