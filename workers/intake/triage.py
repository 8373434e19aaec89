"""Decide by its headers alone what to do with a record whose deadline has passed: pure.

A gateway has answered its client by then: its timer gives the FAQ's answer or cuts the model's at the deadline,
whatever the workers do. If the gateway died, its clients lost their sockets and ask again with a new request. So
`ANSWERED_MS` after the deadline nobody waits for a gateway's record any more, and it is skipped; until then its
terminal event is written, for a gateway whose timer is late. Any other producer's record gets its terminal event,
however late.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from shared.wire.deadline import reads_as_seconds
from shared.wire.fields import is_identifier
from shared.wire.headers import number_of, text_of
from shared.wire.messages import ReplyDone
from shared.wire.outcome import Outcome
from shared.wire.topics import CE_ID, DEADLINE, REPLY_PARTITION, REPLY_TOPIC, reply_topic_allowed

ANSWERED_MS: Final = 1_000
_MAX_PARTITION: Final = 999_999_999


class Fate(Enum):
    """`OPEN`: the record has to be decoded. `SKIP`: nobody waits for it."""

    OPEN = auto()
    SKIP = auto()


@dataclass(frozen=True, slots=True)
class Late:
    """The terminal event of a record that is never opened, and where it goes."""

    topic: str
    partition: int | None
    done: ReplyDone


def deadline_in(headers: Mapping[str, bytes]) -> int | None:
    """Return the hard deadline by the headers, in Unix milliseconds; None where they have none that is valid."""
    deadline = number_of(headers, DEADLINE)
    return None if deadline is None or reads_as_seconds(deadline) else deadline


@dataclass(frozen=True, slots=True)
class Triage:
    """`gateways` is the gateways' own reply topic, `allowed` what other producers may name. A gateway's record is
    skipped so long after its deadline."""

    gateways: str
    allowed: Sequence[str]
    answered_ms: int = ANSWERED_MS

    def fate(self, headers: Mapping[str, bytes], key: bytes | None, now_unix_ms: float) -> Fate | Late:
        deadline = deadline_in(headers)
        if deadline is None or deadline > now_unix_ms:
            return Fate.OPEN
        topic = text_of(headers, REPLY_TOPIC) or ""
        if topic == self.gateways and deadline + self.answered_ms <= now_unix_ms:
            return Fate.SKIP
        request_id = text_of(headers, CE_ID) or ""
        if not is_identifier(request_id) or not reply_topic_allowed(topic, self.allowed):
            return Fate.OPEN
        partition = number_of(headers, REPLY_PARTITION)
        return Late(
            topic,
            partition if partition is not None and partition <= _MAX_PARTITION else None,
            _cut(request_id, key, attempt=int(now_unix_ms)),
        )


def _cut(request_id: str, key: bytes | None, *, attempt: int) -> ReplyDone:
    """Return the end of a request that has no answer: the FAQ cannot answer it, for its input stands in the value. A
    key that is not of the form `tenant/session` names no session."""
    session_id = key.decode(errors="replace").partition("/")[2] if key else ""
    return Outcome.uncounted("incomplete", "deadline").within(
        ReplyDone,
        request_id=request_id,
        session_id=session_id if is_identifier(session_id) else "",
        attempt=attempt,
    )
