"""Choose where a question goes: the registry's rule names a lane, and the ladder finds the lane that answers in time.
Pure."""

from collections.abc import Callable
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from gateway.destination.destination import Destination, Fallback, Question
from gateway.destination.ladder import STEPS, Ladder, Step
from gateway.destination.lanes import LaneAdmissions
from shared.versions.state import State
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.messages import Bucket
from shared.wire.session_key import SessionKey
from shared.wire.topics import BUCKETS

PartitionOf = Callable[[SessionKey, Bucket, Lane, int | None], int | None]
"""Return the partition of a bucket's topic in a lane, by the conversation's claimed partition, else by its key's hash;
None while the number of partitions is unknown."""


class View(Struct, frozen=True, kw_only=True):
    """A snapshot by which a question's destination is chosen.

    Attributes:
        state: the registry's state at `now_unix_ms`; unchanged while a question waits for Redis
        admissions: the lanes' workers, breakers and shares. These and `ladder` are the gateway's live objects, so a
            worker or breaker that changes during the wait counts.
        partition_of: returns the partition of a bucket's topic
        sheds: memory is short
    """

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
        """Return whether a worker of the lane recently reported that it serves the bucket with the lane's version
        loaded. For the champion's lane any version counts, because no other lane can answer for it."""
        if (admission := self.admissions.known.get(lane)) is None:
            return False
        revision = None if lane == CHAMPION else self.state.revision(lane)
        return admission.fleet.serves(bucket, self.now_unix_ms, revision)

    def steps(self, bucket: Bucket) -> list[Step]:
        """Return the ladder's lanes that have a live worker, from the top down."""
        return [step for step in STEPS if step in self.admissions.known and self.is_live(step, bucket)]


def by_rule(session: SessionKey, bucket: Bucket, view: View) -> Destination:
    """Return the destination that the registry's rule names for a conversation's question.

    It is the champion's if no live worker of the rule's lane has the lane's version. A conversation uses one lane for
    questions of all buckets, so the rule's lane must serve every bucket that the champion serves.
    """
    lane, state = view.state.lane(session), view.state
    if lane != CHAMPION:
        served = {bucket, *(each for each in BUCKETS if view.is_live(CHAMPION, each))}
        lane = lane if all(view.is_live(lane, each) for each in served) else CHAMPION
    return Destination(lane, state.revision(lane), state.epoch or None, bucket=bucket)


def to_champion(bucket: Bucket, state: State) -> Destination:
    """Return the champion's destination without applying the rule."""
    return Destination(CHAMPION, state.revision(CHAMPION), state.epoch or None, bucket=bucket)


def choose(question: Question, wanted: Destination, view: View) -> Destination | Fallback:
    """Return the destination of a question that the rule sends to `wanted`, and register it with the lane that gets it.

    A rollout's lane gets only what its workers can answer in time. The rest is the champion's, as it is without a
    rollout, and evidence about neither version: no customer loses the model because a lane has too few workers. If no
    rung accepts a question, the reason is that of the first rung tried.
    """
    view.ladder.hold = view.state.rung
    if view.closed:
        return Fallback("memory" if view.sheds else "held", wanted)
    live = view.steps(wanted.bucket)
    if wanted.lane != CHAMPION:
        asked = _ask(question, wanted.lane, wanted, view, may_divert=bool(live))
        if isinstance(asked, Destination) or not live:
            return asked
        wanted = _diverted(wanted, view)
    found: Destination | Fallback | None = None
    taken: Step | None = None
    for step in view.ladder.offers(live):
        asked = _ask(question, step, wanted, view)
        if isinstance(asked, Destination):
            found, taken = asked, step
            break
        if asked.reason == "share":  # a tenant that exceeds its share of one lane gets no other lane
            return asked
        found = found or asked
    has_place = partial(_has_place, question, wanted, view) if question.deadline.promised is None else None
    view.ladder.record_outcome(question.session, taken, live, has_place=has_place, now_unix_ms=view.now_unix_ms)
    return found or Fallback("held", wanted)


def _diverted(wanted: Destination, view: View) -> Destination:
    """Return the champion's destination for a question that a rollout's lane has no time for."""
    return replace(to_champion(wanted.bucket, view.state), claimed=wanted.claimed, diverted_from=wanted)


def below(question: Question, given_up: Destination, view: View, *, overtaken: bool = False) -> Destination | None:
    """Return where to send a question a second time that a lane's workers gave up: to a lower rung, or from a rollout's
    lane to the champion.

    Args:
        question: the question
        given_up: the destination whose workers gave it up
        view: the snapshot
        overtaken: this gateway has sent a later question of its conversation since

    Returns:
        None if no rung can answer it in the time left, or if it is overtaken: Kafka has a conversation's questions in
        the order asked.
    """
    view.ladder.hold = view.state.rung
    if given_up.lane not in STEPS:
        return None if overtaken else _instead(question, given_up, view)
    found: Destination | None = None
    taken: Step | None = None
    live = [] if overtaken else view.steps(given_up.bucket)
    for step in view.ladder.below(given_up.lane, live):
        asked = _ask(question, step, given_up, view)
        if isinstance(asked, Destination):
            found, taken = replace(asked, eta_ms=given_up.eta_ms), step
            break
    view.admissions.of(given_up.lane).release(question.response_id)
    view.ladder.note_given_up(question.session, given_up.lane, taken, counts=question.deadline.promised is None)
    return found


def _instead(question: Question, given_up: Destination, view: View) -> Destination | None:
    """Return the champion's destination, or one below it, for a question that a rollout's workers gave up."""
    if not view.steps(given_up.bucket):
        return None
    found = choose(question, replace(_diverted(given_up, view), given_up=True), view)
    if isinstance(found, Fallback):
        return None
    view.admissions.of(given_up.lane).release(question.response_id)
    return replace(found, eta_ms=given_up.eta_ms)


def _ask(
    question: Question, lane: Lane, wanted: Destination, view: View, *, may_divert: bool = False
) -> Destination | Fallback:
    """Return a lane's destination if its workers get the question, otherwise the reason why not. A conversation is cold
    in a lower lane that did not give its last answer, and when it is diverted in every lane but its own."""
    partition = view.partition_of(question.session, wanted.bucket, lane, wanted.claimed.partition)
    decision = view.admissions.of(lane).decide(
        question.response_id,
        question.session.tenant,
        wanted.bucket,
        question.deadline,
        partition=partition,
        received_unix_ms=question.received_unix_ms,
        now_unix_ms=view.now_unix_ms,
        cold=wanted.diverted_from is not None or (lane != CHAMPION and view.ladder.seats.get(question.session) != lane),
        may_divert=may_divert,
    )
    if decision.fallback is not None:
        return Fallback(decision.fallback, wanted)
    return Destination(
        lane,
        wanted.revision if lane == wanted.lane else view.state.revision(lane),
        view.state.epoch or None,
        partition,
        decision.eta_ms,
        wanted.bucket,
        wanted.claimed,
        wanted.diverted_from,
        wanted.given_up,
        decision.worker_id,
    )


def _has_place(question: Question, wanted: Destination, view: View, lane: Lane) -> bool:
    """Return whether a lane's workers could answer a question in time."""
    partition = view.partition_of(question.session, wanted.bucket, lane, wanted.claimed.partition)
    return view.admissions.of(lane).has_place(
        wanted.bucket, question.deadline, partition=partition, now_unix_ms=view.now_unix_ms
    )
