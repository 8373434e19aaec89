"""Place a request: in the lane that the rule names, or on the ladder's first rung that can answer it in time. Pure."""

from collections.abc import Callable
from dataclasses import dataclass

from gateway.admission.control import Decision
from gateway.admission.ladder import STEPS, Ladder, Step
from gateway.admission.lanes import LaneAdmissions
from shared.wire.deadline import Deadline
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.messages import Bucket
from shared.wire.session_key import SessionKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that seeks a place. `partition_of` gives its partition of the bucket's topic in a lane; None where that
    is not known."""

    request_id: str
    session: SessionKey
    bucket: Bucket
    deadline: Deadline
    partition_of: Callable[[Lane], int | None]
    received_unix_ms: float

    @property
    def counts(self) -> bool:
        """Return whether what comes of it moves the ladder: not if its client asks for less time than the promise."""
        return self.deadline.promised is None


@dataclass(slots=True)
class Placement:
    """Places a gateway's requests on lanes; owned by its event loop."""

    admissions: LaneAdmissions
    ladder: Ladder

    def place(self, asked: Asked, lane: Lane, now_unix_ms: float) -> tuple[Lane, Decision]:
        """Return the lane that gets a request, and the decision; where the fallback is to answer, those of the first
        lane that was asked. Only the champion's requests use the ladder: on another model a canary's answer would say
        nothing of the canary."""
        if self.ladder.hold == "faq":
            return lane, Decision("held", None)
        if lane != CHAMPION:
            return lane, self._decide(asked, lane, now_unix_ms)
        live = self._live(asked.bucket, now_unix_ms)
        placed: tuple[Step, Decision] | None = None
        taken: Step | None = None
        for step in self.ladder.offers(live):
            decision = self._decide(asked, step, now_unix_ms)
            if placed is None or decision.light is None:
                placed = step, decision
            if decision.light == "share":  # who has too much of one lane is given no other's
                return step, decision
            if decision.light is None:
                taken = step
                break
        self._note(asked, taken, live, now_unix_ms)
        return placed or (CHAMPION, Decision("held", None))

    def place_below(self, asked: Asked, lane: Lane, now_unix_ms: float) -> tuple[Step, Decision] | None:
        """Return the lane that gets a request which a lane's workers have given up; None where the fallback is to
        answer."""
        found: tuple[Step, Decision] | None = None
        for step in self.ladder.below(lane, self._live(asked.bucket, now_unix_ms)):
            decision = self._decide(asked, step, now_unix_ms)
            if decision.light is None:
                found = step, decision
                break
        self.admissions.of(lane).release(asked.request_id)
        self.ladder.note_given_up(asked.session, lane, found[0] if found is not None else None, counts=asked.counts)
        return found

    def _live(self, bucket: Bucket, now_unix_ms: float) -> list[Step]:
        return [step for step in STEPS if self.admissions.is_live(step, bucket, now_unix_ms)]

    def _decide(self, asked: Asked, lane: Lane, now_unix_ms: float) -> Decision:
        return self.admissions.of(lane).decide(
            asked.request_id,
            asked.session.tenant,
            asked.bucket,
            asked.deadline,
            partition=asked.partition_of(lane),
            received_unix_ms=asked.received_unix_ms,
            now_unix_ms=now_unix_ms,
            cold=self.ladder.is_cold(asked.session, lane),
        )

    def _note(self, asked: Asked, taken: Step | None, live: list[Step], now_unix_ms: float) -> None:
        above = self.ladder.above(live)
        above_has_place = above is not None and self.admissions.of(above).has_place(
            asked.bucket, asked.deadline, partition=asked.partition_of(above), now_unix_ms=now_unix_ms
        )
        if asked.counts:
            self.ladder.note(asked.session, taken, live, above_has_place=above_has_place, now_unix_ms=now_unix_ms)
        else:
            self.ladder.seat(asked.session, taken)
