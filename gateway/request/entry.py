"""A request as its gateway accepted it, its answer so far, and what its client has of it. Pure."""

from dataclasses import dataclass, field

from gateway.destination.destination import TO_CHAMPION, Destination, Question
from gateway.request.answer import Answer, State
from gateway.request.cursor import Place, ResumePoint, checksum, digest_of
from gateway.request.outbox import Opened, Shown
from shared.conversation.turn import Turn
from shared.tracing.context import TraceContext
from shared.tracing.worker import WorkerHalf
from shared.wire.deadline import Deadline
from shared.wire.lanes import LANES
from shared.wire.messages import Bucket, Consent, ResponseCreate, ResponseCreated
from shared.wire.outcome import Response
from shared.wire.session_key import SessionKey

# The gateway's span that the workers' spans are linked to (`SpanTree.add`).
SEND_SPAN = 1


@dataclass(frozen=True, slots=True)
class Adopted:
    """The context of the gateway that began the trace, and when this one took the answer over."""

    begun: TraceContext
    unix_ms: float


@dataclass(slots=True, kw_only=True)
class RequestTrace:
    """The times noted of one request for its trace. `traceparent` goes with it to the workers. `sent`: handed to Kafka;
    `acked`: acknowledged; `last_text`: the last text for the client; `heard`: a worker's end arrived, with its times in
    `worker`. The request of an `adopted` answer was sent by another gateway."""

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
        """Return where the trace began: here, or at the gateway that the answer was adopted from."""
        return self.context if self.adopted is None else self.adopted.begun

    @property
    def send_id(self) -> int:
        """Return the id of the send span, which the workers' spans are linked to."""
        return self.begun.child_id(SEND_SPAN)

    @property
    def packed(self) -> bytes | None:
        """Return the context by which another gateway continues the trace; None where none is recorded."""
        return self.begun.packed() if self.recorded else None


Item = Opened | Shown | Response


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request, with all that is fixed once a message has become one.

    If another gateway accepted it, `input` is empty (`Adoption.question`), `asked`, the client's message, is None, and
    so is `trace` if that gateway recorded none. Its times on the wire are `clock_ms` ahead of this process's.
    `generation` is the conversation's; without `generation_known` Redis was away, and the time of receipt takes its
    place. `log` is where in the reply topic its replies begin; None if that is not known."""

    response_id: str
    event_id: str
    session: SessionKey
    input: str
    received_unix_ms: float
    deadline: Deadline
    clock_ms: int = 0
    generation: int = 0
    generation_known: bool = True
    consent: Consent | None = None
    log: Place | None = None
    trace: RequestTrace | None = None
    asked: ResponseCreate | None = None

    @property
    def asked_unix_ms(self) -> int:
        """Return the time of receipt on the wire: in its record, its cursor and its cancel the same."""
        return int(self.received_unix_ms + self.clock_ms)


@dataclass(slots=True, kw_only=True)
class Adoption:
    """Another gateway accepted the request, and this one continues its answer.

    The answer ends by `latest_unix_ms`, whatever is still being read. `recall_deadline` holds while its replies are
    read from the log; None afterwards, and the request's own holds. `question` is its input, once that was read from
    the request's topic or its client asked again."""

    latest_unix_ms: float
    recall_deadline: Deadline | None = None
    question: str = ""


@dataclass(slots=True, kw_only=True)
class Publication:
    """Where a request goes, and where it is: its `destination`, which is the registry's until it is decided, and its
    `place` in the topic, None before Kafka's acknowledgement; `published` once Kafka has it."""

    destination: Destination = TO_CHAMPION
    place: Place | None = None
    published: bool = False

    @property
    def partition(self) -> int | None:
        """Return the partition that has the request, or gets it; None if the key's hash gives it."""
        return self.destination.partition if self.place is None else self.place.partition


@dataclass(slots=True, kw_only=True, eq=False)
class Entry:
    """One request in flight. `connection_id` is the connection that its answer is shown on; None after that was lost.
    A client that has resumed has `seen` characters of the text from before, of the checksum `seen_crc`; 0 once the text
    here has reached them. `adoption` is None where this gateway accepted the request."""

    request: Request
    connection_id: str | None
    answer: Answer = field(default_factory=Answer)
    publication: Publication = field(default_factory=Publication)
    adoption: Adoption | None = None
    seen: int = 0
    seen_crc: int = 0
    response_id: str = field(init=False)

    def __post_init__(self) -> None:
        self.response_id = self.request.response_id

    @property
    def input(self) -> str:
        """Return the question; nothing where another gateway accepted it, and it has not been read yet."""
        return self.request.input or (self.adoption.question if self.adoption is not None else "")

    @property
    def deadline(self) -> Deadline:
        """Return the deadline that holds now."""
        recall = self.adoption.recall_deadline if self.adoption is not None else None
        return recall or self.request.deadline

    @property
    def started(self) -> bool:
        """Return whether the client has text of the answer."""
        return self.answer.created and bool(self.answer.chars or self.seen)

    def opened(self) -> Opened:
        """Return the item that starts the answer, or starts it again."""
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
        """Return the turn that the conversation's history keeps of an answer that this gateway gave."""
        return response.within(
            Turn,
            request_id=self.response_id,
            user=self.input,
            asked_unix_ms=self.request.asked_unix_ms,
            generation=self.request.generation,
            concurrent=self.publication.destination.claimed.concurrent,
        )

    def question(self, bucket: Bucket) -> Question:
        """Return what a destination is chosen by."""
        request = self.request
        return Question(
            request_id=request.response_id,
            session=request.session,
            bucket=bucket,
            deadline=self.deadline,
            received_unix_ms=request.received_unix_ms,
            clock_ms=request.clock_ms,
            generation_known=request.generation_known,
        )

    def admit(self, now_unix_ms: float) -> None:
        """Admit a request: its tokens are counted, and it is on its way to Kafka."""
        if self.answer.state is State.COUNTING:
            self.answer.advance(State.PUBLISHING)
            self.answer.admitted_unix_ms = now_unix_ms

    def acknowledge(self) -> list[Item]:
        """Note that Kafka has the request. Replies that arrived sooner are shown now."""
        self.publication.published = True
        if self.answer.state is not State.PUBLISHING:
            return []
        self.answer.advance(State.STREAMING if self.answer.chars else State.WAITING)
        return self.replay()

    def show(self, text: str, now_unix_ms: float) -> list[Item]:
        """Add text; return what its client is shown of it now."""
        answer, trace = self.answer, self.request.trace
        shown = Shown(self.response_id, answer.chars, text)
        answer.append(text)
        if answer.first_text_unix_ms is None and self.adoption is None:
            answer.first_text_unix_ms = now_unix_ms
        if trace is not None:
            trace.last_text_unix_ms = now_unix_ms
        if answer.state is State.WAITING:
            answer.advance(State.STREAMING)
        if not answer.created:
            return []
        return self.unseen() if self.seen else [shown]

    def open_late(self) -> list[Item]:
        """Start an answer that ends before its client has a `response.created`; return nothing where it has one."""
        if self.answer.created:
            return []
        self.answer.drop_text()
        return [self.opened()]

    def replay(self) -> list[Item]:
        """Return the answer from its beginning, with all its text so far."""
        return [self.opened(), *([Shown(self.response_id, 0, self.answer.text)] if self.answer.chars else [])]

    def unseen(self) -> list[Item]:
        """Return the text that the client has not seen, once the text here has reached what it has; all of it where
        that is another text."""
        if self.answer.chars < self.seen:
            return []
        text, seen = self.answer.text, self.seen
        if checksum(text[:seen]) != self.seen_crc and seen:
            return self.restart()
        self.seen = 0
        return [Shown(self.response_id, seen, text[seen:])] if self.answer.chars > seen else []

    def restart(self) -> list[Item]:
        """Replay the answer to a client that has seen text which is not its beginning; nothing to any other."""
        if not self.seen:
            return []
        self.seen = 0
        return self.replay()

    def _resume_point(self) -> ResumePoint:
        request, publication = self.request, self.publication
        received = int(request.received_unix_ms)
        return ResumePoint(
            digest=digest_of(request.response_id),
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
