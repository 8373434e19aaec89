"""The answers that a customer has rated bad, for the person who corrects them: kept only with the customer's consent to
training, and erased with the conversation. Pure."""

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
    """A question and the answer that did not help. `source` is a digest of the rating's source, `revision` the version
    that wrote it, `entries` the ids of the FAQ entries that it was answered from."""

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
    """Return a session's last bad answers: the last rating of an answer counts."""
    return (*without(kept, new.response_id), new)[-MAX_OF_A_SESSION:]


def without(kept: Iterable[BadAnswer], response_id: str) -> tuple[BadAnswer, ...]:
    return tuple(each for each in kept if each.response_id != response_id)


def source_of(session: SessionKey, subject: str, network: str = "") -> str:
    """Return the digest of a rating's source: a token's subject; without one the client's network, however many
    conversations it opens; without both the conversation."""
    source = f"{session.tenant}\0{subject}" if subject else f"{session.tenant}\0\0{network}"
    if not (subject or network):
        return session.digest
    return blake2b(source.encode(), digest_size=8, person=b"replyline-source").hexdigest()


def must_go(forgotten: Mapping[str, int], people: Iterable[str], copied_unix_ms: float) -> bool:
    """Return whether a copy of what these conversations held at that time may no longer be kept. `forgotten`: digest →
    the moment until which all of it goes, by a gateway's clock."""
    return any(forgotten.get(person, -math.inf) + _CLOCK_SKEW_MS >= copied_unix_ms for person in people)


encode_bad_answers: Final = msgspec.msgpack.Encoder().encode
decode_bad_answers: Final = msgspec.msgpack.Decoder(tuple[BadAnswer, ...]).decode
