"""The destination of a question as one value: a lane's workers, or the fallback. Pure."""

from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from gateway.destination.admission import FallbackReason
from gateway.destination.partitions import Claimed
from shared.wire.deadline import Deadline
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.messages import Bucket
from shared.wire.session_key import SessionKey

_UNCLAIMED: Final = Claimed()


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The properties of a question by which its destination is chosen.

    Attributes:
        clock_ms: how far the time on the wire is ahead of this process's clock
        generation: generation of the conversation; an erasure increments it
        generation_known: False if Redis was unavailable; then it is that of the last erasure in the log
    """

    response_id: str
    session: SessionKey
    received_unix_ms: float
    deadline: Deadline
    clock_ms: int = 0
    generation: int = 0
    generation_known: bool = True


class Destination(Struct, frozen=True):
    """The workers that a question is sent to: those of a lane, through the topic of its bucket.

    Attributes:
        revision: the lane's version in the registry's state of `epoch`; None if the registry is empty
        partition: partition of the topic; None if the hash of the key decides
        eta_ms: predicted time from receipt to the first text; None if no worker predicts it
        diverted_from: the rollout's destination that had no time for the question; None if the rule names this one
        given_up: the workers of `diverted_from` had the question and gave it up; otherwise they never got it
        worker_id: the worker that reads the partition; empty if unknown
    """

    lane: Lane = CHAMPION
    revision: str | None = None
    epoch: int | None = None
    partition: int | None = None
    eta_ms: float | None = None
    bucket: Bucket = "short"
    claimed: Claimed = _UNCLAIMED
    diverted_from: "Destination | None" = None
    given_up: bool = False
    worker_id: str = ""

    @property
    def by_rule(self) -> "Destination":
        """Return the destination that the registry's rule names."""
        return self.diverted_from or self

    def lane_named(self, revision: str | None) -> Lane | None:
        """Return the lane that an answer by this version names: its worker's, unless that is the champion's."""
        return self.lane if self.lane != CHAMPION and revision == self.revision else None


TO_CHAMPION: Final = Destination()


class Fallback(Struct, frozen=True):
    """The fallback answers, for this reason. `wanted` is the destination that the registry's rule names."""

    reason: FallbackReason
    wanted: Destination
