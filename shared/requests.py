"""A `ChatRequest` as it came becomes one with nothing left open: defaults, limits and the deadline, decided once."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from shared.deadline import Deadline, parse_unix_ms, reads_as_seconds
from shared.errors import ProtocolError
from shared.messages import ChatRequest
from shared.settings import Settings
from shared.topics import (
    CE_ID,
    CE_SOURCE,
    CE_SPECVERSION,
    CE_TYPE,
    CONTENT_TYPE,
    REPLY_PARTITION,
    REPLY_TOPIC,
    reply_topic_allowed,
)
from shared.topics import DEADLINE as DEADLINE_HEADER
from shared.topics import TRACEPARENT as TRACEPARENT_HEADER

_SHOWN_BYTES = 40


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the settings say of requests that do not say it themselves."""

    tenant: str
    output_tokens: int
    max_output_tokens: int
    first_token_ms: int
    deadline_ms: int
    max_deadline_ms: int
    reply_topic: str
    reply_topics: tuple[str, ...]

    @classmethod
    def of(cls, settings: Settings) -> "Defaults":
        prefix = settings.kafka.topic_prefix
        return cls(
            tenant=settings.tenant,
            output_tokens=settings.limits.default_output_tokens,
            max_output_tokens=settings.limits.max_output_tokens,
            first_token_ms=settings.promise.first_token_ms,
            deadline_ms=settings.promise.deadline_ms,
            max_deadline_ms=settings.promise.max_deadline_ms,
            reply_topic=settings.kafka.topics.external_replies,
            reply_topics=tuple(prefix + pattern for pattern in settings.kafka.reply_topics),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A request that can be served: every field has its value."""

    request: ChatRequest
    tenant: str
    max_output_tokens: int
    temperature: float
    top_p: float
    seed: int
    created_unix_ms: int
    deadline: Deadline
    reply_topic: str
    reply_partition: int | None


def settle(request: ChatRequest, defaults: Defaults, now_unix_ms: float) -> Order:
    """Fill in what is open. An absent seed follows from the request's id, so that a second worker draws the same.

    Raises `ProtocolError` for a reply topic that is not on the allow-list and for a time in seconds. Asking for more
    tokens or time than the limits allow is not an error: the limits apply. What each bad deadline comes to stands in
    docs/deadlines.md.
    """
    _refuse_seconds(request)
    reply_topic = request.reply_topic or defaults.reply_topic
    if not reply_topic_allowed(reply_topic, defaults.reply_topics):
        allowed = ", ".join(defaults.reply_topics)
        raise ProtocolError("reply_topic_not_allowed", f"{reply_topic!r} is not on the allow-list ({allowed})")
    return Order(
        request=request,
        tenant=request.tenant or defaults.tenant,
        max_output_tokens=min(request.max_output_tokens or defaults.output_tokens, defaults.max_output_tokens),
        temperature=request.temperature if request.temperature is not None else 0.0,
        top_p=request.top_p if request.top_p is not None else 1.0,
        seed=request.seed if request.seed is not None else _seed_of(request.id),
        created_unix_ms=min(_created(request, now_unix_ms), int(now_unix_ms)),
        deadline=_deadline(request, defaults, now_unix_ms),
        reply_topic=reply_topic,
        reply_partition=request.reply_partition,
    )


def request_headers(order: Order, *, source: str) -> dict[str, bytes]:
    """CloudEvents binary mode, and what a reader needs without opening the value."""
    headers = {
        CONTENT_TYPE: b"application/msgpack",
        CE_ID: order.request.id.encode(),
        CE_TYPE: b"chat.request",
        CE_SOURCE: source.encode(),
        CE_SPECVERSION: b"1.0",
        DEADLINE_HEADER: str(order.deadline.deadline_unix_ms).encode(),
        REPLY_TOPIC: order.reply_topic.encode(),
    }
    if order.reply_partition is not None:
        headers[REPLY_PARTITION] = str(order.reply_partition).encode()
    if order.request.traceparent:
        headers[TRACEPARENT_HEADER] = order.request.traceparent.encode()
    return headers


def heed_header(request: ChatRequest, headers: Mapping[str, bytes]) -> ChatRequest:
    """The request with the deadline of its header where that is the earlier one, or the only one: who read no more
    than the header has already gone by it.

    Raises `ProtocolError` for a header that is no time in milliseconds.
    """
    told = headers.get(DEADLINE_HEADER)
    if told is None:
        return request
    deadline = parse_unix_ms(told)
    if deadline is None:
        given = told[:_SHOWN_BYTES].decode("ascii", "replace")
        raise ProtocolError(
            "invalid_field", f"header {DEADLINE_HEADER}={given!r}: write Unix milliseconds", param=DEADLINE_HEADER
        )
    _refuse_if_seconds(DEADLINE_HEADER, deadline)
    if request.deadline_unix_ms is not None and request.deadline_unix_ms <= deadline:
        return request
    return msgspec.structs.replace(request, deadline_unix_ms=deadline)


def _refuse_seconds(request: ChatRequest) -> None:
    for name in ("created_unix_ms", "deadline_unix_ms", "first_token_unix_ms"):
        _refuse_if_seconds(name, getattr(request, name))


def _refuse_if_seconds(name: str, unix_ms: int | None) -> None:
    if unix_ms is not None and reads_as_seconds(unix_ms):
        raise ProtocolError(
            "invalid_field", f"{name}={unix_ms} is a Unix time in seconds; write milliseconds", param=name
        )


def _created(request: ChatRequest, now_unix_ms: float) -> int:
    return request.created_unix_ms if request.created_unix_ms is not None else int(now_unix_ms)


def _deadline(request: ChatRequest, defaults: Defaults, now_unix_ms: float) -> Deadline:
    """What was created in the future shows a clock ahead of ours by at least so much: the promise keeps its length and
    runs from now. A clock behind ours cannot be told from a request that has waited: its deadline stands."""
    created, now = _created(request, now_unix_ms), int(now_unix_ms)
    ahead = max(0, created - now)

    def by_our_clock(unix_ms: int | None, default_ms: int) -> int:
        if unix_ms is None:
            return created - ahead + default_ms
        return unix_ms - ahead if unix_ms >= created else unix_ms  # earlier than its creation: then that is wrong

    hard = min(by_our_clock(request.deadline_unix_ms, defaults.deadline_ms), now + defaults.max_deadline_ms)
    soft = by_our_clock(request.first_token_unix_ms, defaults.first_token_ms)
    return Deadline(first_token_unix_ms=min(soft, hard), deadline_unix_ms=hard)


def _seed_of(request_id: str) -> int:
    """FNV-1a, 64 bit, shortened to what every msgpack reader holds: stable across processes, unlike `hash`."""
    value = 0xCBF29CE484222325
    for byte in request_id.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value >> 1
