"""A request as the gateway holds it, and what becomes of it for its client. Pure."""

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, Literal

import msgspec

from gateway.request.cursor import Place, Told, checksum, digest_of
from gateway.request.outbox import Opened, Shown
from gateway.request.trace_times import RequestTrace
from shared.conversation.turn import Turn
from shared.faq.fallback import Fallback
from shared.wire.deadline import Deadline
from shared.wire.messages import Bucket, Consent, ResponseCreated
from shared.wire.outcome import Response, Timings
from shared.wire.session_key import SessionKey

# An answer that is adopted is read from the log for so long, at most, before its own gateway's clock may end it; beyond
# a deadline that is still to come only so far.
_RECALL_MS: Final = 1_000
_OVER_DEADLINE_MS: Final = 200
# Text flows as long as the last piece is no older: less than `kafka.session_timeout_ms`, after which a dead worker's
# requests are another's, and more than the guard holds a sentence back.
_FLOWS_MS: Final = 5_000.0

Item = Opened | Shown | Response
FallbackReason = Literal["infeasible", "breaker", "share", "memory", "deadline", "worker", "broker"]


class State(Enum):
    COUNTING = auto()
    PUBLISHING = auto()
    WAITING = auto()
    STREAMING = auto()
    DONE = auto()


# A client may be told of its answer before Kafka has its question: by the FAQ, or by whoever answered it elsewhere.
_NEXT: Final = {
    State.COUNTING: {State.PUBLISHING, State.WAITING, State.STREAMING, State.DONE},
    State.PUBLISHING: {State.WAITING, State.STREAMING, State.DONE},
    State.WAITING: {State.STREAMING, State.DONE},
    State.STREAMING: {State.DONE},
    State.DONE: set[State](),
}


@dataclass(slots=True, kw_only=True)
class Adoption:
    """Another gateway began the answer, and this one has taken it over. `latest_unix_ms`: until then something may be
    waited for to end it. `promised` is set while it is being read from the log: its own deadlines, which those of its
    entry may be beyond meanwhile."""

    latest_unix_ms: float
    promised: Deadline | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Entry:
    """One request. `connection_id` is the connection that hears of it; None after that was lost. `eta_ms` is the first
    text's predicted time from receipt; None where nothing is known, or the workers do not get the request. `generation`
    is its conversation's; not `sure`: Redis was away, and it goes by when the question was asked. Its moments on the
    wire are `clock_ms` ahead of this process's time.

    `partition` of its bucket's topic, None where that is not known. `log` and `place` are as in `Told`. `seen`
    characters of the text, of the checksum `seen_crc`, its client has from before it came back; 0 once the text here
    has reached them. `adoption` is None where the answer was begun here. `trace` is None where another gateway began it
    and told of none.
    `stood_in`: a gateway answered from the FAQ, or said "busy", since no worker did in time; a worker may give the
    FAQ's entry too, by its own decision. `heard_unix_ms`: when the last delta of `attempt`
    came. `settled`: its end was told, and is in the books.
    """

    response_id: str
    event_id: str
    session: SessionKey
    connection_id: str | None
    input: str
    received_unix_ms: float
    deadline: Deadline
    clock_ms: int = 0
    generation: int = 0
    sure: bool = True
    consent: Consent | None = None
    state: State = State.COUNTING
    bucket: Bucket = "short"
    partition: int | None = None
    fallback: FallbackReason | None = None
    eta_ms: float | None = None
    published: bool = False
    adoption: Adoption | None = None
    log: Place | None = None
    place: Place | None = None
    seen: int = 0
    seen_crc: int = 0
    admitted_unix_ms: float | None = None
    first_text_unix_ms: float | None = None
    attempt: int = -1
    heard_unix_ms: float = 0.0
    diverged: bool = False
    stood_in: bool = False
    chars: int = 0
    parts: list[str] = field(default_factory=list)
    response: Response | None = None
    done_unix_ms: float = 0.0
    settled: bool = False
    trace: RequestTrace | None = None

    def advance(self, state: State) -> None:
        """Advance to a later state; an illegal step is our own bug."""
        if state not in _NEXT[self.state]:
            raise AssertionError(f"{self.response_id}: {self.state.name} → {state.name}")
        self.state = state

    @property
    def asked_unix_ms(self) -> int:
        """When it was received, on the wire: in its record, its cursor and its cancel the same."""
        return int(self.received_unix_ms + self.clock_ms)

    @property
    def text(self) -> str:
        return "".join(self.parts)

    @property
    def done(self) -> bool:
        return self.state is State.DONE

    @property
    def heard(self) -> bool:
        """Return whether a worker's reply has come here."""
        return self.attempt >= 0

    @property
    def created(self) -> bool:
        """Return whether the client has been told that its answer is assured."""
        return self.state in {State.WAITING, State.STREAMING, State.DONE}

    @property
    def started(self) -> bool:
        """Return whether the client has text of it."""
        return self.created and bool(self.chars or self.seen)

    def opened(self) -> Opened:
        """Told from its beginning, or again."""
        return Opened(
            ResponseCreated(
                response_id=self.response_id,
                event_id=self.event_id,
                bucket=self.bucket,
                eta_ms=round(self.eta_ms) if self.eta_ms is not None else None,
            ),
            self._told(),
            self.received_unix_ms,
        )

    def turn(self, answer: Fallback) -> Turn:
        """Return the turn by which the conversation remembers what was answered in the model's stead."""
        return Turn(
            request_id=self.response_id,
            user=self.input,
            assistant=answer.text,
            source=answer.source,
            asked_unix_ms=self.asked_unix_ms,
            grounding=answer.grounding,
            generation=self.generation,
        )

    def admit(self, bucket: Bucket, now_unix_ms: float) -> None:
        """Admit a request: it is counted and on its way to Kafka."""
        if self.state is State.COUNTING:
            self.advance(State.PUBLISHING)
            self.bucket = bucket
            self.admitted_unix_ms = now_unix_ms

    def acknowledge(self) -> list[Item]:
        """Kafka has the request. Replies that came sooner are shown now."""
        self.published = True
        if self.state is not State.PUBLISHING:
            return []
        self.advance(State.STREAMING if self.chars else State.WAITING)
        return self.told_whole()

    def show(self, text: str, now_unix_ms: float) -> list[Item]:
        """Add text; return what its client is shown of it now."""
        shown = Shown(self.response_id, self.chars, text)
        self.parts.append(text)
        self.chars += len(text)
        if self.first_text_unix_ms is None and self.adoption is None:
            self.first_text_unix_ms = now_unix_ms
        if self.trace is not None:
            self.trace.last_text_unix_ms = now_unix_ms
        if self.state is State.WAITING:
            self.advance(State.STREAMING)
        if not self.created:
            return []
        return self.unseen() if self.seen else [shown]

    def flows(self, attempt: int, now_unix_ms: float) -> bool:
        """Return whether another attempt than this one has told its client something a moment ago."""
        is_fresh = now_unix_ms - self.heard_unix_ms <= _FLOWS_MS
        return self.created and bool(self.chars) and attempt != self.attempt and is_fresh

    def drop_unseen(self) -> None:
        """Drop text that came before the client heard of its answer: it is replaced, not continued."""
        self.parts.clear()
        self.chars = 0
        self.first_text_unix_ms = None

    def opened_at_last(self) -> list[Item]:
        """Tell the client that its answer is assured; nothing where it knows already."""
        if self.created:
            return []
        self.drop_unseen()
        return [self.opened()]

    def told_whole(self) -> list[Item]:
        """Tell it from the beginning, with all its text so far."""
        return [self.opened(), *([Shown(self.response_id, 0, self.text)] if self.chars else [])]

    def unseen(self) -> list[Item]:
        """Return the text that the client has not seen, once the text here has reached what it has; all of it where
        that is another."""
        if self.chars < self.seen:
            return []
        text, seen = self.text, self.seen
        if checksum(text[:seen]) != self.seen_crc and seen:
            return self.told_anew()
        self.seen = 0
        return [Shown(self.response_id, seen, text[seen:])] if self.chars > seen else []

    def told_anew(self) -> list[Item]:
        """Tell the text from the beginning where the client has seen one that is not its beginning."""
        if not self.seen:
            return []
        self.seen = 0
        return self.told_whole()

    def timings(self, worker: Timings, now_unix_ms: float) -> Timings:
        """Return the worker's timings and the gateway's own."""
        start = self.received_unix_ms
        return msgspec.structs.replace(
            worker,
            admission_ms=round(self.admitted_unix_ms - start, 3) if self.admitted_unix_ms is not None else None,
            ttft_ms=round(self.first_text_unix_ms - start, 3) if self.first_text_unix_ms is not None else None,
            total_ms=round(now_unix_ms - start, 3),
        )

    def _told(self) -> Told:
        promised = self.adoption.promised if self.adoption is not None else None
        received, promise = int(self.received_unix_ms), promised or self.deadline
        return Told(
            digest=digest_of(self.response_id),
            event_id=self.event_id,
            bucket=self.bucket,
            received_unix_ms=self.asked_unix_ms,
            first_token_ms=promise.first_token_unix_ms - received,
            deadline_ms=promise.deadline_unix_ms - received,
            log=self.log,
            place=self.place,
            trace=self.trace.told if self.trace is not None else None,
            generation=self.generation,
        )


def adopted(told: Told, session: SessionKey, connection_id: str, now_unix_ms: int) -> Entry:
    """Return the entry of an answer that another gateway began, as its client tells of it, of its age by now. Until it
    is recalled, or for a while, the log may still say how it went on, and its deadlines wait for that."""
    now = now_unix_ms
    start = now - told.age_ms
    hard = start + told.deadline_ms
    promised = Deadline(first_token_unix_ms=start + told.first_token_ms, deadline_unix_ms=hard)
    latest = now + _RECALL_MS if hard <= now else min(now + _RECALL_MS, hard + _OVER_DEADLINE_MS)
    return Entry(
        response_id=told.response_id,
        event_id=told.event_id,
        session=session,
        connection_id=connection_id,
        input="",
        received_unix_ms=start,
        deadline=Deadline(
            first_token_unix_ms=max(promised.first_token_unix_ms, latest), deadline_unix_ms=max(hard, latest)
        ),
        adoption=Adoption(
            latest_unix_ms=(now + _RECALL_MS if hard <= now else hard) + _OVER_DEADLINE_MS, promised=promised
        ),
        clock_ms=told.received_unix_ms - start,
        generation=told.generation,
        state=State.WAITING,
        bucket=told.bucket,
        published=told.place is not None,
        log=told.log,
        place=told.place,
        seen=told.chars,
        seen_crc=told.crc,
    )
