"""An accepted request in the gateway's memory, with the answer as far as it is known, and how much of it the client has
received. Pure."""

import hashlib
from dataclasses import dataclass, field

from gateway.access.charges import Caller
from gateway.destination.destination import TO_CHAMPION, Destination, Question
from gateway.request.answer import Answer, AnswerState
from gateway.request.cursor import ID_BYTES, ID_PREFIX, Place, ResumePoint, checksum
from gateway.request.outbox import Opened, Shown
from shared.conversation.turn import Turn
from shared.tracing.context import TraceContext
from shared.tracing.worker import WorkerHalf
from shared.wire.deadline import Deadline
from shared.wire.lanes import LANES
from shared.wire.messages import Consent, ResponseCreate, ResponseCreated
from shared.wire.outcome import Response
from shared.wire.session_key import SessionKey

# The child id of the gateway's send span. The workers' spans are linked to it (`SpanTree.add`).
SEND_SPAN = 1


@dataclass(frozen=True, slots=True)
class Adopted:
    """Trace context of the gateway that began the trace, and when this gateway adopted the answer."""

    begun: TraceContext
    unix_ms: float


@dataclass(slots=True, kw_only=True)
class RequestTrace:
    """The times of one request that its trace shows.

    Attributes:
        traceparent: sent to the workers with the request
        adopted: set if another gateway sent the request
        sent_unix_ms: when the request was handed to the Kafka producer
        acked_unix_ms: when Kafka acknowledged it
        last_text_unix_ms: when the last text for the client was added
        heard_unix_ms: when a worker's terminal event arrived
        worker: the times that this event reports
    """

    context: TraceContext
    traceparent: str = ""
    recorded: bool = False
    adopted: Adopted | None = None
    sent_unix_ms: float | None = None
    acked_unix_ms: float | None = None
    last_text_unix_ms: float | None = None
    heard_unix_ms: float | None = None
    worker: WorkerHalf | None = None

    @property
    def begun(self) -> TraceContext:
        """Return the context in which the trace began: here, or at the gateway that the answer was adopted from."""
        return self.context if self.adopted is None else self.adopted.begun

    @property
    def send_id(self) -> int:
        """Return the id of the send span, to which the workers' spans are linked."""
        return self.begun.child_id(SEND_SPAN)

    @property
    def packed(self) -> bytes | None:
        """Return the packed context with which another gateway continues the trace; None if no trace is recorded."""
        return self.begun.packed() if self.recorded else None


Item = Opened | Shown | Response


def response_id(session: SessionKey, event_id: str, text: str, generation: int = 0) -> str:
    """Return a request's id. All gateways compute the same one; a different text under the same event id, or another
    generation of the conversation, gives another one."""
    named = f"{session.tenant}\0{session.session_id}\0{event_id}\0{text}".encode()
    salt = generation.to_bytes(8)
    return ID_PREFIX + hashlib.blake2b(named, digest_size=ID_BYTES, person=b"replyline-id", salt=salt).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Question):
    """The part of a request that never changes once it was accepted.

    Attributes:
        input: the question; empty if another gateway accepted the request (see `Adoption.question`)
        log: where the answer's replies begin in the reply topic; None if unknown
        trace: None if another gateway accepted the request and records no trace
        asked: the client's message; None if another gateway accepted the request
        caller: who is charged for what the answer causes, even after its client has disconnected
        asked_unix_ms: the time of receipt on the wire, as written into its record, its cursor and its cancel
    """

    event_id: str
    input: str
    consent: Consent | None = None
    log: Place | None = None
    trace: RequestTrace | None = None
    asked: ResponseCreate | None = None
    caller: Caller | None = None
    asked_unix_ms: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "asked_unix_ms", int(self.received_unix_ms + self.clock_ms))


@dataclass(slots=True, kw_only=True)
class Adoption:
    """State of an answer that another gateway accepted and this gateway continues.

    Attributes:
        latest_unix_ms: when the answer ends at the latest, even if the log is still being read
        question: the question, once read from the request's topic or repeated by the client
    """

    latest_unix_ms: float
    question: str = ""


@dataclass(slots=True, kw_only=True)
class Publication:
    """Where a request was sent.

    Attributes:
        destination: the lane and partition; the registry's champion until a destination is chosen
        place: partition and offset of the record; None before Kafka's acknowledgement
        published: Kafka has acknowledged the record
    """

    destination: Destination = TO_CHAMPION
    place: Place | None = None
    published: bool = False

    @property
    def partition(self) -> int | None:
        """Return the request's partition; None if the hash of its key decides."""
        return self.destination.partition if self.place is None else self.place.partition


@dataclass(slots=True, kw_only=True, eq=False)
class Entry:
    """One request in flight.

    Attributes:
        connection_id: the connection that shows the answer; None after it was lost
        adoption: None if this gateway accepted the request
        seen: number of characters that a resumed client already has; 0 once the text here has reached that point
        seen_crc: checksum of those characters
        kept_chars: how much text it held when its answer ended
        deadline: the deadline that applies now: the request's, or a later one while the replies of an adopted answer
            are read from the log
        for_person: a person answers, so no deadline ends it
    """

    request: Request
    connection_id: str | None
    answer: Answer = field(default_factory=Answer)
    publication: Publication = field(default_factory=Publication)
    adoption: Adoption | None = None
    seen: int = 0
    seen_crc: int = 0
    kept_chars: int = 0
    for_person: bool = False
    response_id: str = field(init=False)
    deadline: Deadline = field(init=False)

    def __post_init__(self) -> None:
        self.response_id, self.deadline = self.request.response_id, self.request.deadline

    @property
    def input(self) -> str:
        """Return the question. It is empty if another gateway accepted the request and its record was not read yet."""
        return self.request.input or (self.adoption.question if self.adoption is not None else "")

    @property
    def num_chars(self) -> int:
        """Return how much text the entry holds, in characters."""
        turns = self.request.asked.turns if self.request.asked is not None else None
        return len(self.input) + sum(len(each.user) + len(each.assistant) for each in turns or ()) + self.answer.chars

    @property
    def started(self) -> bool:
        """Return whether the client has received text of the answer."""
        return self.answer.created and bool(self.answer.chars or self.seen)

    def opened(self) -> Opened:
        """Return the item that starts the answer at the client, or restarts it."""
        to = self.publication.destination
        return Opened(
            ResponseCreated(
                response_id=self.response_id,
                event_id=self.request.event_id,
                bucket=to.bucket,
                eta_ms=round(to.eta_ms) if to.eta_ms is not None else None,
            ),
            self._resume_point(),
            self.request.received_unix_ms,
        )

    def turn(self, response: Response) -> Turn:
        """Return the turn to store in the conversation's history, for an answer that this gateway gave itself."""
        return response.within(
            Turn,
            request_id=self.response_id,
            user=self.input,
            asked_unix_ms=self.request.asked_unix_ms,
            generation=self.request.generation,
            concurrent=self.publication.destination.claimed.concurrent,
            origin="gateway",
        )

    def acknowledge(self) -> list[Item]:
        """Record Kafka's acknowledgement. Return the replies that arrived before it, to be shown now."""
        self.publication.published = True
        if self.answer.state is not AnswerState.PUBLISHING:
            return []
        items = self.replay()
        self.answer.advance(AnswerState.STREAMING if self.answer.chars else AnswerState.WAITING)
        return items

    def show(self, text: str, now_unix_ms: float) -> list[Item]:
        """Append text to the answer and return the items to show its client now."""
        answer, trace = self.answer, self.request.trace
        shown = Shown(self.response_id, answer.chars, text)
        answer.append(text)
        if answer.first_text_unix_ms is None and self.adoption is None:
            answer.first_text_unix_ms = now_unix_ms
        if trace is not None:
            trace.last_text_unix_ms = now_unix_ms
        if answer.state is AnswerState.WAITING:
            answer.advance(AnswerState.STREAMING)
        if not answer.created:
            return []
        return self.unseen() if self.seen else [shown]

    def open_late(self) -> list[Item]:
        """Return the item that starts an answer, for an end that comes before `response.created`; nothing if the client
        has it."""
        if self.answer.created:
            return []
        self.answer.drop_text()
        return [self.opened()]

    def replay(self) -> list[Item]:
        """Return the items that show the answer from its beginning."""
        return [self.opened(), *([Shown(self.response_id, 0, self.answer.text)] if self.answer.chars else [])]

    def unseen(self) -> list[Item]:
        """Return the text that a resumed client lacks. Return nothing until the text here is as long as the client's,
        and the whole answer if the client's text is different."""
        if self.answer.chars < self.seen:
            return []
        text, seen = self.answer.text, self.seen
        if checksum(text[:seen]) != self.seen_crc and seen:
            return self.restart()
        self.seen = 0
        return [Shown(self.response_id, seen, text[seen:])] if self.answer.chars > seen else []

    def restart(self) -> list[Item]:
        """Replay the answer to a resumed client whose text may differ; return nothing for any other client."""
        if not self.seen:
            return []
        self.seen = 0
        return self.replay()

    def _resume_point(self) -> ResumePoint:
        request, publication = self.request, self.publication
        received = int(request.received_unix_ms)
        return ResumePoint(
            digest=bytes.fromhex(request.response_id.removeprefix(ID_PREFIX)),
            event_id=request.event_id,
            bucket=publication.destination.bucket,
            received_unix_ms=request.asked_unix_ms,
            first_token_ms=request.deadline.first_token_unix_ms - received,
            deadline_ms=request.deadline.deadline_unix_ms - received,
            log=request.log,
            place=publication.place,
            trace=request.trace.packed if request.trace is not None else None,
            generation=request.generation,
            lane_number=LANES.index(publication.destination.lane),
        )
