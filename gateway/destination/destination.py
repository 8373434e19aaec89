"""Where a question goes, as one value: to a lane's workers, or to the fallback. Pure."""

from typing import Final

from msgspec import Struct

from gateway.destination.admission import FallbackReason
from gateway.destination.partitions import Claimed
from shared.wire.deadline import Deadline
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.messages import Bucket
from shared.wire.session_key import SessionKey

_UNCLAIMED: Final = Claimed()


class Question(Struct, frozen=True, kw_only=True):
    """A question that seeks a destination. Its times on the wire are `clock_ms` ahead of this process's. Without
    `generation_known` Redis did not answer a moment ago, and is not asked again."""

    request_id: str
    session: SessionKey
    bucket: Bucket
    deadline: Deadline
    received_unix_ms: float
    clock_ms: int = 0
    generation_known: bool = True


class Destination(Struct, frozen=True):
    """The workers that a question is sent to: those of a lane, by the topic of its bucket.

    `revision` is the lane's version by the registry's state of `epoch`; None if the registry is empty. `partition` is
    that of the topic; None if the key's hash decides. `eta_ms` is the predicted time from receipt to the first text;
    None if no worker predicts it."""

    lane: Lane = CHAMPION
    revision: str | None = None
    epoch: int | None = None
    partition: int | None = None
    eta_ms: float | None = None
    bucket: Bucket = "short"
    claimed: Claimed = _UNCLAIMED


TO_CHAMPION: Final = Destination()


class Fallback(Struct, frozen=True):
    """The fallback answers, for this reason; `wanted` is the destination that the registry's rule names."""

    reason: FallbackReason
    wanted: Destination
