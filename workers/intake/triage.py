"""Decide from a record's headers what to do if its deadline has passed. Pure.

A gateway has answered its client at the deadline: its timer sends the FAQ's answer or cuts the model's, independently
of the workers. If the gateway died, its clients reconnect and ask with a new request. So `ANSWERED_MS` after the
deadline a gateway's record needs no answer any more and is skipped; before that its terminal event is written, in case
the gateway's timer is late. Any other producer's record gets its terminal event, however late.
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


class TriageDecision(Enum):
    """What to do with a record. `OPEN`: decode it. `SKIP`: it needs no answer."""

    OPEN = auto()
    SKIP = auto()


@dataclass(frozen=True, slots=True)
class Late:
    """The terminal event of a record that is not decoded, and its target."""

    topic: str
    partition: int | None
    done: ReplyDone


def deadline_in(headers: Mapping[str, bytes]) -> int | None:
    """Return the hard deadline in the headers, in Unix milliseconds; None if there is no valid one."""
    deadline = number_of(headers, DEADLINE)
    return None if not deadline or reads_as_seconds(deadline) else deadline


@dataclass(frozen=True, slots=True)
class Triage:
    """Decides by the headers.

    Attributes:
        gateways: the gateways' own reply topic.
        allowed: patterns of the reply topics that other producers may name.
        answered_ms: a gateway's record is skipped this long after its deadline.
    """

    gateways: str
    allowed: Sequence[str]
    answered_ms: int = ANSWERED_MS

    def classify(self, headers: Mapping[str, bytes], key: bytes | None, now_unix_ms: float) -> TriageDecision | Late:
        deadline = deadline_in(headers)
        if deadline is None or deadline > now_unix_ms:
            return TriageDecision.OPEN
        topic = text_of(headers, REPLY_TOPIC) or ""
        if topic == self.gateways and deadline + self.answered_ms <= now_unix_ms:
            return TriageDecision.SKIP
        request_id = text_of(headers, CE_ID) or ""
        if not is_identifier(request_id) or not reply_topic_allowed(topic, self.allowed):
            return TriageDecision.OPEN
        partition = number_of(headers, REPLY_PARTITION)
        return Late(
            topic,
            partition if partition is not None and partition <= _MAX_PARTITION else None,
            _cut(request_id, key, attempt=int(now_unix_ms)),
        )


def _cut(request_id: str, key: bytes | None, *, attempt: int) -> ReplyDone:
    """Return the end of a request without an answer.

    The FAQ cannot answer it, since the question is in the undecoded value. The session id comes from a key of the form
    `tenant/session`, else it is empty.
    """
    session_id = key.decode(errors="replace").partition("/")[2] if key else ""
    return Outcome.uncounted("incomplete", "deadline").within(
        ReplyDone,
        request_id=request_id,
        session_id=session_id if is_identifier(session_id) else "",
        attempt=attempt,
    )
