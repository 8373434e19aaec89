"""Decide by its headers alone what to do with a record whose deadline has passed: pure.

A gateway has answered its client by then: its timer gives the FAQ's answer or cuts the model's at the deadline,
whatever the workers do. If the gateway died, its clients lost their sockets and ask again with a new request. So
`ANSWERED_MS` after the deadline nobody waits for a gateway's record any more, and it is skipped; until then its
terminal event is written, for a gateway whose timer is late. Any other producer's record gets its terminal event,
however late.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from shared.wire.deadline import parse_unix_ms, reads_as_seconds
from shared.wire.messages import ReplyDone
from shared.wire.outcome import Outcome
from shared.wire.topics import CE_ID, DEADLINE, REPLY_PARTITION, REPLY_TOPIC, reply_topic_allowed

ANSWERED_MS: Final = 1_000
_MAX_PARTITION_DIGITS: Final = 9
# `shared.wire.fields.Identifier`: who reads a reply relies on it.
_IDENTIFIER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:\-]{0,63}")


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
    value = headers.get(DEADLINE)
    deadline = parse_unix_ms(value) if value else None
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
        topic = headers.get(REPLY_TOPIC, b"").decode(errors="replace")
        if topic == self.gateways and deadline + self.answered_ms <= now_unix_ms:
            return Fate.SKIP
        request_id = headers.get(CE_ID, b"").decode(errors="replace")
        if not _IDENTIFIER.fullmatch(request_id) or not reply_topic_allowed(topic, self.allowed):
            return Fate.OPEN
        partition = headers.get(REPLY_PARTITION, b"")
        return Late(
            topic,
            int(partition) if partition.isdigit() and len(partition) <= _MAX_PARTITION_DIGITS else None,
            _cut(request_id, key, attempt=int(now_unix_ms)),
        )


def _cut(request_id: str, key: bytes | None, *, attempt: int) -> ReplyDone:
    """Return the end of a request that has no answer: the FAQ cannot answer it, for its input stands in the value. A
    key that is not of the form `tenant/session` names no session."""
    session_id = key.decode(errors="replace").partition("/")[2] if key else ""
    return Outcome.uncounted("incomplete", "deadline").within(
        ReplyDone,
        request_id=request_id,
        session_id=session_id if _IDENTIFIER.fullmatch(session_id) else "",
        attempt=attempt,
    )
