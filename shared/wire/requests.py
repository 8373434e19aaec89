"""Complete a received `ChatRequest`: defaults, limits and the deadline are decided once."""

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import msgspec

from shared.errors import ProtocolError
from shared.wire.codec import decode_request
from shared.wire.deadline import Deadline, parse_unix_ms, reads_as_seconds
from shared.wire.headers import Headers, header_of, number_of, text_of
from shared.wire.lenient import UNREADABLE, by_name, names_type, read_beginning, read_record
from shared.wire.messages import ChatRequest
from shared.wire.session_key import SessionKey
from shared.wire.topics import (
    CE_ID,
    CE_TYPE,
    REPLY_PARTITION,
    REPLY_TOPIC,
    reply_topic_allowed,
)
from shared.wire.topics import DEADLINE as DEADLINE_HEADER

_SHOWN_BYTES = 40
_SHOWN_CHARS = 100
_MOST_NAME_CHARS = 255
_MAX_PARTITION = 2**31 - 1  # partition numbers in Kafka have 32 bits
_CE_TYPE = "chat.request"
_CLOCKS_DIFFER_MS = 1_000  # more than synchronised clocks do
_TIMES = ("created_unix_ms", "deadline_unix_ms", "first_token_unix_ms")

Target = tuple[str, int | None]
"""A topic for replies, and a partition if the request names one."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """The settings' values for fields that a request does not set."""

    tenant: str
    output_tokens: int
    max_output_tokens: int
    first_token_ms: int
    deadline_ms: int
    max_deadline_ms: int
    reply_topic: str
    reply_topics: tuple[str, ...]
    tenants: tuple[str, ...] = ("*",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A request with a value in every field. Without a generation in the request, it is derived from the creation time.

    An erasure in the millisecond of the creation or later has a later generation.
    """

    request: ChatRequest
    tenant: str
    max_output_tokens: int
    temperature: float
    top_p: float
    seed: int
    created_unix_ms: int
    generation: int
    deadline: Deadline
    reply_topic: str
    reply_partition: int | None
    clock_ms: int = 0

    @property
    def session(self) -> SessionKey:
        return SessionKey(self.tenant, self.request.session_id)

    @property
    def asked_unix_ms(self) -> int:
        """Return when it was asked according to its record, even if that is ahead of this process's clock.

        Prompts are built from this time, and must be the same at every worker.
        """
        return self.created_unix_ms if self.request.created_unix_ms is None else self.request.created_unix_ms

    def by_a_clock_behind(self, clock_ms: int) -> "Order":
        """Return the request with its deadline converted to the process's clock, which is `clock_ms` behind the wire's.

        The time of creation remains as written.
        """
        return replace(self, deadline=self.deadline.later(-clock_ms), clock_ms=clock_ms)


def settle(
    request: ChatRequest, defaults: Defaults, now_unix_ms: float, *, arrived_unix_ms: int | None = None
) -> Order:
    """Fill in missing fields. A missing seed is derived from the request's id, so that a second worker gets the same.

    Asking for more tokens or time than the limits allow is not an error: the limits apply. docs/deadlines.md describes
    how each bad deadline is treated.

    Args:
        request: the request as received.
        defaults: the values of missing fields, and the limits.
        now_unix_ms: the time at which it is read.
        arrived_unix_ms: the broker's time of its record's arrival; None if unknown. If the creation is over a second
            later, the arrival counts instead, so that an erasure after it erases the request under any producer's
            clock.

    Raises:
        ProtocolError: the tenant or reply topic is not on its allow-list, or a time is in seconds.
    """
    _refuse_seconds(request)
    if request.reply_partition is not None and request.reply_partition > _MAX_PARTITION:
        given = f"reply_partition={request.reply_partition}"
        raise ProtocolError("invalid_field", f"{given} is above {_MAX_PARTITION}", param="reply_partition")
    tenant = request.tenant or defaults.tenant
    if not any(fnmatchcase(tenant, pattern) for pattern in defaults.tenants):
        allowed = ", ".join(defaults.tenants)
        raise ProtocolError("tenant_not_allowed", f"{tenant!r} is not on the allow-list ({allowed})", param="tenant")
    reply_topic = request.reply_topic or defaults.reply_topic
    if not reply_topic_allowed(reply_topic, defaults.reply_topics):
        allowed = ", ".join(defaults.reply_topics)
        raise ProtocolError(
            "reply_topic_not_allowed",
            f"{reply_topic[:_SHOWN_CHARS]!r} is not on the allow-list ({allowed})",
            param="reply_topic",
        )
    created = min(_created(request, now_unix_ms), int(now_unix_ms))
    if arrived_unix_ms is not None and created > arrived_unix_ms + _CLOCKS_DIFFER_MS:
        created = arrived_unix_ms
    return Order(
        request=request,
        tenant=tenant,
        max_output_tokens=min(request.max_output_tokens or defaults.output_tokens, defaults.max_output_tokens),
        temperature=request.temperature if request.temperature is not None else 0.0,
        top_p=request.top_p if request.top_p is not None else 1.0,
        seed=seed_of(request),
        created_unix_ms=created,
        generation=request.generation if request.generation is not None else max(0, created - 1),
        deadline=_deadline(request, defaults, now_unix_ms),
        reply_topic=reply_topic,
        reply_partition=request.reply_partition,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The fields of a rejected record that identify its sender."""

    id: str
    session_id: str
    reply_topic: str | None
    reply_partition: int | None


def asker_of(request: ChatRequest | Names, defaults: Defaults) -> Target | None:
    """Return where the error for a rejected request goes; None if it names no topic that it may use."""
    topic, partition = request.reply_topic or defaults.reply_topic, request.reply_partition
    if not reply_topic_allowed(topic, defaults.reply_topics) or not 0 <= (partition or 0) <= _MAX_PARTITION:
        return None
    return topic, partition


def open_request(value: bytes | None, headers: Headers, *, unreadable: str = "") -> ChatRequest:
    """Return a record's request, combined from its value and its headers.

    Args:
        value: the record's value.
        headers: its headers.
        unreadable: why aiokafka could not decode the record; empty if it could.

    Raises:
        ProtocolError: the value is not a `ChatRequest`, or a header contradicts it.
    """
    if unreadable:
        raise ProtocolError("invalid_record", unreadable)
    return heed_headers(_without_zero_times(decode_request(value)), headers)


def _without_zero_times(request: ChatRequest) -> ChatRequest:
    """Return the request without times of 1970: serializers without absent fields write 0."""
    zeros = {name: None for name in _TIMES if getattr(request, name) == 0}
    return msgspec.structs.replace(request, **zeros) if zeros else request


def heed_headers(request: ChatRequest, headers: Headers) -> ChatRequest:
    """Return the request, completed from its headers.

    Readers that look only at headers have already acted on them, so the earlier of two deadlines counts, a reply topic
    or partition that only a header names is used, and a header with a different id, type, reply topic or partition than
    the value's is an error.

    Raises:
        ProtocolError: `header_mismatch`, or `invalid_field` for a header that is not a time or number.
    """
    kind = text_of(headers, CE_TYPE)
    _refuse_other(CE_TYPE, None if kind is None or names_type(kind, _CE_TYPE) else kind, _CE_TYPE)
    _refuse_other(CE_ID, text_of(headers, CE_ID), request.id)
    topic, partition = text_of(headers, REPLY_TOPIC), header_of(headers, REPLY_PARTITION)
    if request.reply_topic:
        _refuse_other(REPLY_TOPIC, topic, request.reply_topic)
    elif topic is not None:
        request = msgspec.structs.replace(request, reply_topic=topic)
    if partition is not None:
        number = _partition_in(partition)
        if request.reply_partition not in {None, number}:
            _refuse_other(REPLY_PARTITION, str(number), str(request.reply_partition))
        request = msgspec.structs.replace(request, reply_partition=number)
    return _with_earlier_deadline(request, header_of(headers, DEADLINE_HEADER))


def names_in(value: bytes | None, headers: Headers, key: bytes | None) -> Names | None:
    """Return the fields of an invalid request that identify its sender; None if it has no id.

    They come from its value, else from its headers and its key (`tenant/session`).
    """
    try:
        said = read_record(value or b"")
    except UNREADABLE:
        said = read_beginning(value or b"")
    fields = by_name(said) if isinstance(said, dict) else {}
    partition = fields.get("replypartition")
    names = Names(
        id=_word(fields.get("id")) or text_of(headers, CE_ID) or "",
        session_id=_word(fields.get("sessionid")) or (key or b"").decode("utf-8", "replace").partition("/")[2],
        reply_topic=_word(fields.get("replytopic")) or text_of(headers, REPLY_TOPIC),
        reply_partition=partition
        if isinstance(partition, int) and partition != -1
        else number_of(headers, REPLY_PARTITION),
    )
    return names if 0 < len(names.id) <= _MOST_NAME_CHARS and len(names.session_id) <= _MOST_NAME_CHARS else None


def _word(said: object) -> str | None:
    return str(said) if isinstance(said, str | int) else None


def _with_earlier_deadline(request: ChatRequest, header: bytes | None) -> ChatRequest:
    if header is None:
        return request
    deadline = parse_unix_ms(header)
    if deadline is None:
        raise ProtocolError(
            "invalid_field",
            f"header {DEADLINE_HEADER}={_shown(header)}: write Unix milliseconds",
            param=DEADLINE_HEADER,
        )
    if deadline == 0:
        return request
    _refuse_if_seconds(DEADLINE_HEADER, deadline)
    if request.deadline_unix_ms is not None and request.deadline_unix_ms <= deadline:
        return request
    return msgspec.structs.replace(request, deadline_unix_ms=deadline)


def _partition_in(header: bytes) -> int:
    number = parse_unix_ms(header)
    if number is None or number > _MAX_PARTITION:
        raise ProtocolError(
            "invalid_field",
            f"header {REPLY_PARTITION}={_shown(header)}: write a partition's number",
            param=REPLY_PARTITION,
        )
    return number


def _refuse_other(name: str, header: str | None, value: str) -> None:
    if header is not None and header != value:
        shown = header[:_SHOWN_BYTES]
        raise ProtocolError(
            "header_mismatch",
            f"header {name}={shown!r}, the value says {value[:_SHOWN_BYTES]!r}; write one thing or no header",
            param=name,
        )


def _shown(header: bytes) -> str:
    return repr(header[:_SHOWN_BYTES].decode("ascii", "replace"))


def _refuse_seconds(request: ChatRequest) -> None:
    for name in _TIMES:
        _refuse_if_seconds(name, getattr(request, name))


def _refuse_if_seconds(name: str, unix_ms: int | None) -> None:
    if unix_ms is not None and reads_as_seconds(unix_ms):
        raise ProtocolError(
            "invalid_field", f"{name}={unix_ms} is a Unix time in seconds; write milliseconds", param=name
        )


def _created(request: ChatRequest, now_unix_ms: float) -> int:
    return request.created_unix_ms if request.created_unix_ms is not None else int(now_unix_ms)


def _deadline(request: ChatRequest, defaults: Defaults, now_unix_ms: float) -> Deadline:
    """Return the deadline in this process's time.

    A request created in the future shows a clock that is ahead of ours by at least that much: the promise keeps its
    length and starts now. A clock behind ours cannot be distinguished from a request that has waited, so its deadline
    is kept.
    """
    created, now = _created(request, now_unix_ms), int(now_unix_ms)
    ahead = max(0, created - now)

    def by_our_clock(unix_ms: int | None, default_ms: int) -> int:
        if unix_ms is None:
            return created - ahead + default_ms
        return unix_ms - ahead if unix_ms >= created else unix_ms  # a deadline before the creation is itself wrong

    hard = min(by_our_clock(request.deadline_unix_ms, defaults.deadline_ms), now + defaults.max_deadline_ms)
    soft = by_our_clock(request.first_token_unix_ms, defaults.first_token_ms)
    promise = Deadline.after(created - ahead, first_token_ms=defaults.first_token_ms, whole_ms=defaults.deadline_ms)
    return Deadline(first_token_unix_ms=min(soft, hard), deadline_unix_ms=hard).judged_by(promise, created - ahead)


def seed_of(request: ChatRequest) -> int:
    """Return a request's seed. A missing one is derived from its id: the 64-bit FNV-1a hash, shortened to what every
    MessagePack reader accepts; unlike `hash` it is stable."""
    if request.seed is not None:
        return request.seed
    value = 0xCBF29CE484222325
    for byte in request.id.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value >> 1
