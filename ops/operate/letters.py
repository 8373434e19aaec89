"""A dead letter as shown to an operator: its origin, its content without the customer's text, and whether it can be
replayed. Pure.

Any client that can write to a request topic chooses the content of a dead letter, so nothing in one is printed
unchanged: anything but a plain name is replaced by its length, and characters that a terminal would interpret are
escaped.
"""

import json
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from shared.kafka import Outgoing, TimedRecord
from shared.nouns import counted
from shared.wire.cloud_events import record_headers
from shared.wire.codec import JSON, MSGPACK
from shared.wire.deadline import parse_unix_ms
from shared.wire.messages import ChatRequest
from shared.wire.topics import (
    CE_ID,
    CE_SOURCE,
    CE_SPECVERSION,
    CE_TYPE,
    CONTENT_TYPE,
    DEAD_DETAIL,
    DEAD_LEFT_OUT,
    DEAD_ORIGIN,
    DEAD_REASON,
    DEAD_REPLAYS,
    DEADLINE,
    REPLY_PARTITION,
    REPLY_TOPIC,
    TRACEPARENT,
)

HEALED_BY: Final = {
    "input_too_long": "a higher REPLYLINE_LIMITS__MAX_INPUT_TOKENS or REPLYLINE_WORKER__MAX_LENGTH",
    "internal": "a corrected version",
    "record_too_large": "a higher max.message.bytes of the topic",
    "reply_topic_not_allowed": "REPLYLINE_KAFKA__REPLY_TOPICS",
    "tenant_not_allowed": "REPLYLINE_KAFKA__TENANTS",
    "unknown_topic": "replyline topics create",
}
"""Reasons caused by the settings or the software, with the remedy. All other reasons are in the record itself."""

_OF_OURS: Final = frozenset({DEAD_REASON, DEAD_DETAIL, DEAD_ORIGIN, DEAD_LEFT_OUT, DEAD_REPLAYS})
_SHOWN_HEADERS: Final = frozenset(
    {CE_ID, CE_SOURCE, CE_SPECVERSION, CE_TYPE, CONTENT_TYPE, DEADLINE, REPLY_PARTITION, REPLY_TOPIC, TRACEPARENT}
)
_FIELDS: Final = frozenset({"type", *(field.name for field in msgspec.structs.fields(ChatRequest))})
_SHOWN_FIELDS: Final = frozenset({"type", "id", "tenant", "session_id", "reply_topic", "traceparent"})
_NAME: Final = re.compile(r"[A-Za-z0-9_.:\-]{1,128}")
_HEADER: Final = re.compile(r"[A-Za-z0-9_.:/\-]{1,128}(; ?[A-Za-z0-9_=\-]{1,64})?")
_KEY: Final = re.compile(r"[A-Za-z0-9_.\-]{1,64}/[A-Za-z0-9_.:\-]{1,64}")
_MAX_DEPTH: Final = 8
_RAW_BYTES: Final = 2_000


@dataclass(frozen=True, slots=True)
class Origin:
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A dead letter. `headers` are the original record's; `tries` is how often it was served: once, plus once per
    replay."""

    partition: int
    offset: int
    written_unix_ms: int
    reason: str
    detail: str
    origin: Origin | None
    left_out: str | None
    tries: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes]

    @property
    def number(self) -> str:
        """Return the letter's number for `show` and `replay`: the offset, preceded by the partition if the topic has
        several."""
        return number_of(self.partition, self.offset)


def number_of(partition: int, offset: int) -> str:
    """Return the number of the letter at a partition and offset (see `parse_number`)."""
    return f"{partition}/{offset}" if partition else str(offset)


def letter_of(kept: TimedRecord) -> Letter:
    """Read a letter from any record. Missing and malformed headers read as unknown."""
    record = kept.record
    headers = record.headers
    return Letter(
        partition=record.partition,
        offset=record.offset,
        written_unix_ms=kept.written_unix_ms,
        reason=_text(headers, DEAD_REASON) or "unknown",
        detail=_text(headers, DEAD_DETAIL) or "",
        origin=_origin(_text(headers, DEAD_ORIGIN) or ""),
        left_out=_text(headers, DEAD_LEFT_OUT),
        tries=1 + (parse_unix_ms(headers.get(DEAD_REPLAYS, b"0")) or 0),
        key=record.key,
        value=record.value,
        headers={name: value for name, value in record_headers(headers).items() if name not in _OF_OURS},
    )


def parse_number(text: str) -> tuple[int, int] | None:
    """Return the partition and offset in a letter's number; None for anything else."""
    found = re.fullmatch(r"(?:(\d{1,6})/)?(\d{1,18})", text, re.ASCII)
    return (int(found[1] or 0), int(found[2])) if found else None


def parse_duration_ms(text: str) -> int | None:
    """Return the milliseconds of `30s`, `15m`, `2h` or `7d`; None for anything else."""
    found = re.fullmatch(r"(\d{1,6})([smhd])", text, re.ASCII)
    return int(found[1]) * {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}[found[2]] if found else None


# --- replaying


def refusal(letter: Letter, request_topics: Collection[str], now_unix_ms: float, *, force: bool) -> str | None:
    """Return why a letter is not replayed; None if it is. `force` overrides reasons for which a replay is merely
    useless."""
    if letter.origin is None or letter.origin.topic not in request_topics:
        return f"its origin {letter.origin or 'is unknown'} is not a request topic of these settings"
    if letter.left_out is not None:
        return f"its value is not stored here ({letter.left_out}); it is at {letter.origin}"
    if force:
        return None
    if letter.reason not in HEALED_BY:
        return (
            f"{letter.reason} is in the record itself: it would come back as a dead letter; --force puts it back anyway"
        )
    deadline = parse_unix_ms(letter.headers.get(DEADLINE, b""))
    if deadline is not None and deadline <= now_unix_ms:
        late_s = (now_unix_ms - deadline) / 1_000
        return f"its deadline passed {late_s:,.0f} s ago: it would be answered as late, unread; --force puts it back"
    return None


def put_back(letter: Letter, origin: Origin) -> Outgoing:
    """Return the original record, marked with the number of its replays."""
    headers = {**letter.headers, DEAD_REPLAYS: str(letter.tries).encode()}
    return Outgoing(origin.topic, letter.value, key=letter.key, partition=origin.partition, headers=headers)


# --- showing


def row(letter: Letter) -> dict[str, Any]:
    """Return one row of the list, without the customer's text."""
    return {
        "number": letter.number,
        "when": when(letter.written_unix_ms),
        "reason": _named(letter.reason),
        "topic": None if letter.origin is None else _named(letter.origin.topic),
        "partition": None if letter.origin is None else letter.origin.partition,
        "offset": None if letter.origin is None else letter.origin.offset,
        "key": shown_key(letter.key),
        "tries": letter.tries,
    }


def page(letter: Letter, *, text: bool) -> dict[str, Any]:
    """Return everything in a letter; the customer's text only with `text`."""
    return {
        **row(letter),
        "detail": letter.detail,
        "headers": dict(_shown_header(name, value, text=text) for name, value in letter.headers.items()),
        "value": _outline(letter, text=text),
    }


def shown_key(key: bytes | None) -> str | None:
    """Return a key of the form `tenant/session`. Of any other key return only the length, because it may contain
    anything."""
    if key is None:
        return None
    told = key.decode(errors="replace")
    return told if _KEY.fullmatch(told) else _length(key)


def when(unix_ms: int) -> str:
    return datetime.fromtimestamp(unix_ms / 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def printable(text: str) -> str:
    """Return text without characters that a terminal interprets: control and direction characters become JSON
    escapes."""
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)


def as_json(value: Any, *, indent: int | None = None) -> str:
    return printable(json.dumps(value, ensure_ascii=False, indent=indent))


def _outline(letter: Letter, *, text: bool) -> Any:
    if letter.left_out is not None:
        return f"<left out: {letter.left_out}>"
    value = letter.value or b""
    content_type = letter.headers.get(CONTENT_TYPE, MSGPACK.encode()).decode(errors="replace")
    is_json = content_type.partition(";")[0].strip().lower() == JSON
    try:
        fields = msgspec.json.decode(value) if is_json else msgspec.msgpack.decode(value)
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError):
        form = "JSON" if is_json else "MessagePack"
        return repr(value[:_RAW_BYTES]) if text else f"<{counted(len(value), 'byte')}, not {form}>"
    if text:
        return _bounded(fields, _MAX_DEPTH)
    if not isinstance(fields, dict):
        return _kind(fields)
    shown = {name: _shown_field(name, field) for name, field in fields.items() if name in _FIELDS}
    unknown = len(fields) - len(shown)
    return {**shown, "…": f"<{counted(unknown, 'field')} unknown to chat.request>"} if unknown else shown


def _shown_field(name: str, field: Any) -> Any:
    if isinstance(field, str) and name in _SHOWN_FIELDS and _NAME.fullmatch(field):
        return field
    return _finite(field) if field is None or isinstance(field, bool | int | float) else _kind(field)


def _kind(value: Any) -> str:
    match value:
        case str():
            return f"<{counted(len(value), 'character')}>"
        case bytes():
            return _length(value)
        case list():
            return f"<{counted(len(value), 'item')}>"
        case dict():
            return f"<{counted(len(value), 'field')}>"
    return f"<{type(value).__name__}>"


def _bounded(value: Any, depth: int) -> Any:
    """Return the part of a value that JSON can represent, down to a maximum depth."""
    if isinstance(value, dict | list) and depth == 0:
        return "…"
    if isinstance(value, dict):
        return {str(name): _bounded(field, depth - 1) for name, field in value.items()}
    if isinstance(value, list):
        return [_bounded(item, depth - 1) for item in value]
    return _finite(value) if value is None or isinstance(value, str | bool | int | float) else repr(value)


def _finite(value: Any) -> Any:
    """Return a number that JSON can represent: it has no infinity and no NaN."""
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def _shown_header(name: str, value: bytes, *, text: bool) -> tuple[str, str]:
    told = value.decode(errors="backslashreplace")
    if text:
        return name, told
    plain = name in _SHOWN_HEADERS and _HEADER.fullmatch(told)
    return _named(name), told if plain else _length(value)


def _named(text: str) -> str:
    """Return a plain name unchanged, and the length of anything else."""
    return text if _NAME.fullmatch(text) else f"<{counted(len(text), 'character')}>"


def _length(value: bytes) -> str:
    return f"<{counted(len(value), 'byte')}>"


def _text(headers: Mapping[str, bytes], name: str) -> str | None:
    value = headers.get(name)
    return None if value is None else value.decode(errors="replace")


def _origin(text: str) -> Origin | None:
    found = re.fullmatch(r"(.+)/(\d{1,9})/(\d{1,18})", text, re.ASCII)
    return Origin(found[1], int(found[2]), int(found[3])) if found else None
