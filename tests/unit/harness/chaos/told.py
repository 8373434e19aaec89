"""Right answers as a client reports them to a ledger, and the ledger's verdict on answers."""

from dataclasses import dataclass, field
from itertools import pairwise

from shared.wire.messages import ErrorEvent, ResponseCreated, ResponseDelta, ResponseDone
from shared.wire.outcome import ErrorDetail, Reason, Response, Source, Status, Timings, Usage
from tests.chaos.ledger.requests import AnswerEvent, Breach, Ledger, Question
from tests.chaos.ledger.verdict import Rights, Verdict, judge

DEADLINE_MS = 5_000


def rights(question: Question) -> Rights:
    """Write a text unique to the question, like the fake engine."""
    return Rights(model=f"{question.event_id:>12} is answered, and no more", fallback="we are busy", unread="busy")


@dataclass(frozen=True)
class Heard:
    """No message: the socket was lost and another one opened."""

    session: str
    at_s: float
    message: AnswerEvent | None


@dataclass
class Told:
    """The messages received for one request: those of a right answer, which a test then spoils."""

    question: Question
    events: list[Heard] = field(default_factory=list)

    @property
    def asked_s(self) -> float:
        return int(self.question.event_id.removeprefix("ask-")) * 0.1

    @property
    def response_id(self) -> str:
        return f"resp-{self.question.event_id}"

    def add(self, message: AnswerEvent | None, at_s: float) -> None:
        self.events.append(Heard(self.question.session, self.asked_s + at_s, message))

    def shown_before(self, *deltas: ResponseDelta) -> None:
        """Insert an earlier partial answer that the loss of its socket ends; the whole answer follows again."""
        for message in (created(self), *deltas, None):
            self.add(message, 0.01)


def created(told: Told, response_id: str | None = None) -> ResponseCreated:
    return ResponseCreated(response_id=response_id or told.response_id, event_id=told.question.event_id, bucket="short")


def delta(told: Told, seq: int, offset: int, text: str) -> ResponseDelta:
    return ResponseDelta(response_id=told.response_id, seq=seq, offset=offset, delta=text, cursor="c")


def done(
    told: Told,
    text: str,
    *,
    status: Status = "incomplete",
    reason: Reason = "max_output_tokens",
    source: Source = "model",
    total_ms: float = 900.0,
) -> ResponseDone:
    response = Response(
        id=told.response_id,
        status=status,
        reason=reason,
        source=source,
        output_text=text,
        usage=Usage(),
        timings=Timings(total_ms=total_ms),
    )
    return ResponseDone(response=response, cursor="c")


def right_answer(number: int, session: str, cuts: list[int]) -> Told:
    """Return a right answer, received in deltas that end at `cuts`."""
    question = Question(
        event_id=f"ask-{number}",
        session=session,
        text=f"question {number}",
        max_output_tokens=20,
        first_token_ms=3_000,
        deadline_ms=DEADLINE_MS,
    )
    told, text = Told(question), rights(question).model
    told.add(created(told), 0.05)
    edges = sorted({0, *(cut % len(text) for cut in cuts), len(text)})
    for seq, (start, stop) in enumerate(pairwise(edges)):
        told.add(delta(told, seq, start, text[start:stop]), 0.1 + seq / 100)
    told.add(done(told, text), 0.9)
    return told


def replay(answers: list[Told], ledger: Ledger | None = None) -> Ledger:
    ledger = ledger or Ledger()
    for told in answers:
        ledger.asked(told.question, told.asked_s)
    for heard in sorted((heard for told in answers for heard in told.events), key=lambda heard: heard.at_s):
        hear(ledger, heard)
    return ledger


def hear(ledger: Ledger, heard: Heard) -> None:
    if heard.message is not None:
        ledger.heard(heard.session, heard.message, heard.at_s)
        return
    ledger.lost(heard.session, heard.at_s, "cut")
    ledger.dialled(heard.session, heard.at_s, "gateway-1")
    ledger.opened(heard.session, heard.at_s, resumed=True, recovered=False, replayed=0)


def verdict_of(answers: list[Told]) -> Verdict:
    return judge(replay(answers), rights)


def found(verdict: Verdict) -> set[Breach]:
    return {breach for breach in Breach if verdict.count(breach)}


def refusal(told: Told, code: str = "queue_full") -> ErrorEvent:
    error = ErrorDetail(type="overloaded_error", code=code, message="not now", retryable=True)
    return ErrorEvent(error=error, event_id=told.question.event_id)
