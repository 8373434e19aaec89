"""All that a question's destination is decided by, as it is at one moment. Pure."""

from collections.abc import Callable

from msgspec import Struct

from gateway.admission.ladder import STEPS, Ladder, Step
from gateway.admission.lanes import LaneAdmissions
from shared.versions.state import State
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.messages import Bucket
from shared.wire.session_key import SessionKey

PartitionOf = Callable[[SessionKey, Bucket, Lane, int | None], int | None]
"""Return the partition of a bucket's topic in a lane, by the conversation's claimed partition, else by its key's hash;
None while the number of partitions is unknown."""


class View(Struct, frozen=True, kw_only=True):
    """The registry's state at `now_unix_ms`, the lanes' workers, breakers and shares, the ladder, and whether memory is
    short (`sheds`). The state stays the same while a question waits for Redis; `admissions` and `ladder` are the
    gateway's own, so a worker or breaker that changes during the wait counts."""

    now_unix_ms: float
    state: State
    admissions: LaneAdmissions
    ladder: Ladder
    partition_of: PartitionOf
    sheds: bool = False

    @property
    def closed(self) -> bool:
        """Return whether the fallback answers every question."""
        return self.sheds or self.state.rung == "faq"

    def is_live(self, lane: Lane, bucket: Bucket) -> bool:
        """Return whether a worker of the lane that serves the bucket has reported a moment ago, with the lane's version
        loaded. The champion's is asked by any version: no other lane answers for it."""
        revision = None if lane == CHAMPION else self.state.revision(lane)
        return self.admissions.is_live(lane, bucket, self.now_unix_ms, revision)

    def steps(self, bucket: Bucket) -> list[Step]:
        """Return the ladder's lanes that have a live worker, from the top down."""
        known = {lane for lane, _ in self.admissions}
        return [step for step in STEPS if step in known and self.is_live(step, bucket)]
