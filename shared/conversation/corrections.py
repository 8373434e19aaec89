"""Answers that customers rated bad, for the person who corrects them. Pure.

They are stored only with the customer's consent to training, and are erased with the conversation.
"""

import math
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import Struct

from shared.conversation.turn import Turn
from shared.wire.messages import RatingReason
from shared.wire.session_key import SessionKey

MAX_OF_A_SESSION: Final = 5
KEPT_S: Final = 30 * 86_400
_CLOCK_SKEW_MS: Final = 5_000


class BadAnswer(Struct, frozen=True, kw_only=True):
    """A question and the answer that did not help.

    Attributes:
        source: a digest of the rating's source.
        revision: the version that wrote the answer.
        entries: ids of the FAQ entries that the answer is based on.
    """

    response_id: str
    question: str
    answer: str
    source: str
    rated_unix_ms: int
    reason: RatingReason | None = None
    revision: str | None = None
    entries: tuple[str, ...] = ()


def bad_answer(turn: Turn, *, source: str, reason: RatingReason | None, now_unix_ms: float) -> BadAnswer:
    return BadAnswer(
        response_id=turn.request_id,
        question=turn.user,
        answer=turn.output_text,
        source=source,
        rated_unix_ms=int(now_unix_ms),
        reason=reason,
        revision=turn.revision,
        entries=tuple(entry.id for entry in turn.grounding),
    )


def with_one_more(kept: Iterable[BadAnswer], new: BadAnswer) -> tuple[BadAnswer, ...]:
    """Return a session's last bad answers with a new one added; an earlier rating of the same answer is replaced."""
    return (*without(kept, new.response_id), new)[-MAX_OF_A_SESSION:]


def without(kept: Iterable[BadAnswer], response_id: str) -> tuple[BadAnswer, ...]:
    return tuple(each for each in kept if each.response_id != response_id)


def source_of(session: SessionKey, subject: str, network: str = "") -> str:
    """Return a digest of the rating's source.

    The source is the token's subject, else the client's network regardless of the number of conversations, else the
    conversation.
    """
    source = f"{session.tenant}\0{subject}" if subject else f"{session.tenant}\0\0{network}"
    if not (subject or network):
        return session.digest
    return blake2b(source.encode(), digest_size=8, person=b"replyline-source").hexdigest()


def must_go(forgotten: Mapping[str, int], people: Iterable[str], copied_unix_ms: float) -> bool:
    """Return whether a copy of these conversations' content must be deleted.

    Args:
        forgotten: by conversation digest, the time before which all content must go, on a gateway's clock.
        people: digests of the conversations.
        copied_unix_ms: when the copy was made.
    """
    return any(forgotten.get(person, -math.inf) + _CLOCK_SKEW_MS >= copied_unix_ms for person in people)


encode_bad_answers: Final = msgspec.msgpack.Encoder().encode
decode_bad_answers: Final = msgspec.msgpack.Decoder(tuple[BadAnswer, ...]).decode
