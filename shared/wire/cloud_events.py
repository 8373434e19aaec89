"""Records as CloudEvents in Kafka's binary mode: attributes are headers, the value is the data. Pure.

https://github.com/cloudevents/spec/blob/main/cloudevents/bindings/kafka-protocol-binding.md
"""

from collections.abc import Mapping
from typing import Final

from shared.wire.codec import MSGPACK
from shared.wire.messages import ChatRequest, ReplyDelta, ReplyDone
from shared.wire.outcome import Message
from shared.wire.topics import (
    CE_ID,
    CE_SOURCE,
    CE_SPECVERSION,
    CE_TYPE,
    CONTENT_TYPE,
    DEADLINE,
    REPLY_PARTITION,
    REPLY_TOPIC,
    TRACEPARENT,
)

LETTER_TYPE: Final = "chat.dead-letter"
_PREFIX: Final = "ce_"
_SPECVERSION: Final = b"1.0"


def event_headers(message: Message, *, event_id: str, source: str) -> dict[str, bytes]:
    """Return the headers of a record whose value is that message in MessagePack."""
    kind = str(type(message).__struct_config__.tag)
    return {CONTENT_TYPE: MSGPACK.encode()} | _attributes(kind, event_id, source)


def request_headers(request: ChatRequest, *, source: str) -> dict[str, bytes]:
    """Return CloudEvents headers, and those that a reader needs before it decodes the value. The request names its
    deadline and its reply topic."""
    assert request.reply_topic is not None
    headers = event_headers(request, event_id=request.id, source=source) | {
        DEADLINE: str(request.deadline_unix_ms).encode(),
        REPLY_TOPIC: request.reply_topic.encode(),
    }
    if request.reply_partition is not None:
        headers[REPLY_PARTITION] = str(request.reply_partition).encode()
    if request.traceparent:
        headers[TRACEPARENT] = request.traceparent.encode()
    return headers


def reply_headers(reply: ReplyDelta | ReplyDone, *, source: str) -> dict[str, bytes]:
    """Return the headers of a reply to another service."""
    place = "done" if isinstance(reply, ReplyDone) else str(reply.seq)
    return event_headers(reply, event_id=f"{reply.request_id}/{reply.attempt}/{place}", source=source)


def letter_headers(own: Mapping[str, bytes], *, origin: str, source: str) -> dict[str, bytes]:
    """Return a dead letter's headers: those of its record, and a CloudEvent's if the record is not one."""
    is_event = any(name.startswith(_PREFIX) for name in own)
    return dict(own) if is_event else {**own, **_attributes(LETTER_TYPE, origin, source)}


def record_headers(letter: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the headers of a dead letter's original record."""
    is_letters = letter.get(CE_TYPE) == LETTER_TYPE.encode()
    return {name: value for name, value in letter.items() if not (is_letters and name.startswith(_PREFIX))}


def _attributes(kind: str, event_id: str, source: str) -> dict[str, bytes]:
    return {
        CE_ID: event_id.encode(),
        CE_TYPE: kind.encode(),
        CE_SOURCE: source.encode(),
        CE_SPECVERSION: _SPECVERSION,
    }
