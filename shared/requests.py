"""A `ChatRequest` as it came becomes one with nothing left open: defaults, limits and the deadline, decided once."""

from dataclasses import dataclass

from shared.deadline import Deadline
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

    Raises `ProtocolError` for a reply topic that is not on the allow-list. Asking for more tokens or time than the
    limits allow is not an error: the limits apply.
    """
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
        created_unix_ms=request.created_unix_ms if request.created_unix_ms is not None else int(now_unix_ms),
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


def _deadline(request: ChatRequest, defaults: Defaults, now_unix_ms: float) -> Deadline:
    created = request.created_unix_ms if request.created_unix_ms is not None else int(now_unix_ms)
    latest = int(now_unix_ms) + defaults.max_deadline_ms
    asked = request.deadline_unix_ms if request.deadline_unix_ms is not None else created + defaults.deadline_ms
    hard = min(asked, latest)
    soft = request.first_token_unix_ms
    if soft is None:
        soft = created + defaults.first_token_ms
    return Deadline(first_token_unix_ms=min(soft, hard), deadline_unix_ms=hard)


def _seed_of(request_id: str) -> int:
    """FNV-1a, 64 bit, shortened to what every msgpack reader holds: stable across processes, unlike `hash`."""
    value = 0xCBF29CE484222325
    for byte in request_id.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value >> 1
