"""The Kafka record that asks the shop's staff to take over a conversation. Pure."""

from collections.abc import Callable
from typing import Final

from shared.wire.cloud_events import event_headers
from shared.wire.codec import record_decoder
from shared.wire.fields import Count, Identifier, Tenant
from shared.wire.messages import HandoffReason, Language
from shared.wire.outcome import Message
from shared.wire.session_key import SessionKey

_TYPE: Final = "chat.handoff"


class Handoff(Message, frozen=True, tag=_TYPE):
    """A customer waits, or waited, for a person. The record contains no text of the conversation.

    Attributes:
        transcript: the Redis key of the conversation's turns.
        response_ids: the last answers, oldest first.
    """

    id: Identifier
    tenant: Tenant
    session_id: Identifier
    reason: HandoffReason
    language: Language
    created_unix_ms: Count
    transcript: str
    response_ids: tuple[Identifier, ...] = ()

    @property
    def session(self) -> SessionKey:
        return SessionKey(self.tenant, self.session_id)


decode_handoff: Final[Callable[[bytes | None], Handoff]] = record_decoder(Handoff, f"not a {_TYPE}")


def handoff_headers(handoff: Handoff, *, source: str) -> dict[str, bytes]:
    """Return the record's headers in CloudEvents binary mode."""
    return event_headers(handoff, event_id=handoff.id, source=source)
