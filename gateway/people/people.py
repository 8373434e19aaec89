"""Handle requests for a person and ratings of answers. A customer asks for a person with a message, or the gateway
offers one by itself after several answers that did not help."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Literal

from gateway.access.charges import Caller
from gateway.access.quotas import Quotas
from gateway.people.bad_answers import BadAnswers
from gateway.people.handoff_wish import accepts_offer, wants_person
from gateway.people.handoffs import Handoffs, Opening
from gateway.people.people_log import PeopleLog
from gateway.people.session_answers import SessionAnswers
from gateway.request.entry import Entry, Request
from gateway.session.connection import Connection, refuse, start_reply
from shared.conversation.handoffs import Handoff
from shared.conversation.history import History, TurnsMissing
from shared.errors import ProtocolError
from shared.faq.answer_policy import offers_person
from shared.faq.fallback import Fallback
from shared.faq.words.fold import plain
from shared.process.clock import now_unix_ms
from shared.process.tasks import Tasks
from shared.settings.gateway import HandoffSettings
from shared.telemetry import metrics
from shared.telemetry.faults import caught, task_failed
from shared.telemetry.logs import get_logger
from shared.wire.messages import (
    Feedback,
    FeedbackRecorded,
    HandoffCreated,
    HandoffReason,
    HandoffRequest,
    Language,
    Said,
)
from shared.wire.outcome import Response
from shared.wire.session_key import SessionKey

log = get_logger()

_RETRY_AFTER_MS: Final = 5_000
_LAST_TURNS: Final = 8
_TEXTS: Final[dict[Literal["created", "open", "failed"], dict[Language, str]]] = {
    "created": {
        "en": "I have asked a person to take over and passed our conversation on. You can go on asking me meanwhile.",
        "zh": "已为您申请人工客服，并转交了我们的对话。等待期间，您可以继续问我。",
    },
    "open": {
        "en": "A person has already been asked to take over this conversation. You can go on asking me meanwhile.",
        "zh": "这次对话已经申请过人工客服。等待期间，您可以继续问我。",
    },
    "failed": {
        "en": "I could not reach anyone just now, so nobody has been asked. Please try again in a moment.",
        "zh": "暂时联系不上人工客服，尚未为您转接。请稍后再试。",
    },
}


@dataclass(slots=True, kw_only=True)
class People:
    """Owned by the gateway's event loop."""

    settings: HandoffSettings
    handoffs: Handoffs
    quotas: Quotas
    history: History
    bad_answers: BadAnswers
    log: PeopleLog
    observe: Callable[[HandoffRequest | Feedback, Caller], object] = lambda *_: None
    answers: SessionAnswers = field(default_factory=SessionAnswers)
    _beside: Tasks = field(default_factory=lambda: Tasks(task_failed))

    def __len__(self) -> int:
        """Return the number of running background tasks."""
        return len(self._beside)

    def receive(self, connection: Connection, message: HandoffRequest | Feedback) -> None:
        """Start a hand-off, or record a rating. Raises `ProtocolError` if the message is refused."""
        # also for ratings of another gateway's answers, which are refused below
        self.observe(message, connection.session.caller)
        if isinstance(message, Feedback):
            self._rate(connection, message)
        else:
            self._start_request(connection, message)

    # --- a client returns

    def resend_open_handoff(self, connection: Connection) -> None:
        """Send a returning client its conversation's open hand-off again, because it may have missed it."""
        if self.settings.enabled:
            start_reply(self._beside, connection, self._resend_open(connection))

    async def _resend_open(self, connection: Connection) -> None:
        found = await self.handoffs.find(connection.session.key)
        if found is not None:
            _send_created(connection, found)
            if self.log.talks.find(found.session) is None:  # the gateway that opened it died before it wrote that
                self._offer(connection, found)

    def _offer(self, connection: Connection, handoff: Handoff) -> None:
        """Let people take the conversation here, if its client shows their messages."""
        talk = self.log.talks.find(handoff.session)
        if connection.session.talk is not None and (talk is None or talk.state in {"bot", "resolved"}):
            self._beside.start(self._offered(handoff))

    async def _offered(self, handoff: Handoff) -> None:
        generation = await self.handoffs.generation(handoff.session)
        with suppress(ProtocolError):  # another gateway was first, or the client's return tries again
            await self.log.move(
                handoff.session, "waiting", reason=handoff.reason, language=handoff.language, generation=generation
            )

    # --- a client asks for a person

    def _start_request(self, connection: Connection, request: HandoffRequest) -> None:
        """Open a hand-off requested by a client's message. Raises `ProtocolError`."""
        if not self.settings.enabled:
            raise ProtocolError("handoff_not_offered", "no person is available to take over; ask your question here")
        start_reply(self._beside, connection, self._request(connection, request))

    async def _request(self, connection: Connection, request: HandoffRequest) -> None:
        try:
            opening = await self._open(connection.session.caller, "requested", request.language)
            if opening.handoff is None:
                raise _nobody_reached()
        except ProtocolError as error:
            refuse(connection, error, request.event_id)
        else:
            _send_created(connection, opening.handoff, request.event_id)
            self._offer(connection, opening.handoff)
        connection.flush()

    async def answer_wish(
        self,
        entry: Entry,
        connection_of: Callable[[Entry], Connection | None],
        caller: Caller,
        turns: Sequence[Said] | None = None,
    ) -> Fallback | None:
        """Answer a question that asks for a person, or accepts the offer of one.

        Args:
            entry: the question
            connection_of: returns its client's connection; None if it was lost
            caller: who is charged for the hand-off
            turns: the conversation as sent with the question; None means that the history is read

        Returns:
            The answer; None if it is another question, or if there have been too many hand-offs, in which case the
                model answers.
        """
        if not self.settings.enabled:
            return None
        connection, asked = connection_of(entry), plain(entry.input)
        if not wants_person(asked, self.settings.wishes) and not (
            accepts_offer(asked) and await self._was_offered(entry.request, turns)
        ):
            return None
        language = self.answers.language_of(entry)
        try:
            await self.quotas.charge("handoff", caller)
            opening = await self._open(caller, "text", language)
        except ProtocolError:
            return None
        if opening.handoff is None:
            entry.answer.fallback = "broker"
            metrics.fallbacks.labels("broker").inc()
            return Fallback(source="busy", text=_TEXTS["failed"][language], language=language)
        if connection is not None:
            _send_created(connection, opening.handoff)
            self._offer(connection, opening.handoff)
        text = _TEXTS["open" if opening.was_open else "created"][language]
        return Fallback(source="handoff", text=text, language=language)

    async def _was_offered(self, request: Request, turns: Sequence[Said] | None) -> bool:
        """Return whether the conversation's last answer offered a person, by the turns sent with the question, or else
        by the history. An answer of this gateway that is not in the history yet is the last one."""
        if turns is not None:
            return bool(turns) and offers_person(turns[-1].assistant)
        last = self.answers.last(request.session)
        patient_s = request.deadline.patience_s(now_unix_ms())
        try:
            remembered = await self.history.turns(
                request.session,
                limit=_LAST_TURNS,
                before_unix_ms=math.inf,
                generation=request.generation,
                patient_s=patient_s,
            )
        except TurnsMissing as missing:
            remembered = missing.found
        if last is not None and all(turn.request_id != last.id for turn in remembered):
            return last.offers
        return bool(remembered) and offers_person(remembered[-1].output_text)

    # --- a hand-off is due

    def note_answer(self, entry: Entry, response: Response, connection: Connection | None) -> None:
        """Record that an answer has ended. Open a hand-off after the configured number of fallbacks in a row."""
        known = self.answers.answered(entry.request.session, response, stood_in=entry.answer.stood_in)
        if known.first:
            metrics.conversations.inc()
        after = self.settings.after_fallbacks
        if self.settings.enabled and after and known.fallbacks >= after:
            if connection is None:
                self._beside.start(self._after_fallbacks(entry, None))
            else:
                start_reply(self._beside, connection, self._after_fallbacks(entry, connection))

    async def _after_fallbacks(self, entry: Entry, connection: Connection | None) -> None:
        """Open a hand-off after fallbacks. If it fails, nothing is sent: the customer did not ask for it."""
        caller = entry.request.caller or Caller(entry.request.session)
        with suppress(ProtocolError):
            opening = await self._open(caller, "fallbacks", self.answers.language_of(entry))
            if opening.handoff is not None and not opening.was_open and connection is not None:
                _send_created(connection, opening.handoff)
                self._offer(connection, opening.handoff)

    async def _open(self, caller: Caller, reason: HandoffReason, language: Language) -> Opening:
        """Open a hand-off. Raises `ProtocolError` if the caller or the tenant has requested too many."""
        response_ids = self.answers.response_ids(caller.session)
        opening = Opening(None)
        try:
            opening = await self.handoffs.open(caller, reason, language, response_ids)
        except ProtocolError:
            metrics.handoffs.labels(reason, "limited").inc()
            raise
        except Exception as error:  # noqa: BLE001 - the client is sent the text for a failed hand-off
            caught("handoff", error)
        outcome = "failed" if opening.handoff is None else "open" if opening.was_open else "created"
        metrics.handoffs.labels(reason, outcome).inc()
        if opening.handoff is not None:
            self.answers.handed_over(caller.session)
        return opening

    # --- ratings

    def _rate(self, connection: Connection, feedback: Feedback) -> None:
        """Count a rating. An answer counts once, with its latest rating. Raises `ProtocolError`."""
        rated = self.answers.rate(connection.session.key, feedback)
        if rated.verdict != rated.before:
            if rated.before is not None:
                metrics.feedback.labels(rated.source, rated.before, "taken_back").inc()
            metrics.feedback.labels(rated.source, rated.verdict, "given").inc()
            log.info("rated", request_id=feedback.response_id, source=rated.source, verdict=rated.verdict)
        consent = connection.session.consent
        if consent is not None and consent.training:
            helped, consented = rated.verdict == "resolved", connection.session.opened_unix_ms
            self.bad_answers.record_rating(
                connection.session.caller, feedback, helped=helped, consented_unix_ms=consented
            )
        if rated.reason is not None:
            metrics.feedback_reasons.labels(rated.reason).inc()
        connection.put(feedback.within(FeedbackRecorded))

    def forget(self, session: SessionKey, generation: int, now_unix_ms: float) -> None:
        """Forget a conversation that was erased: another generation has begun."""
        self.answers.forget(session)
        self.log.talks.forget(session, generation, now_unix_ms)
        self.handoffs.forget(session)


def _nobody_reached() -> ProtocolError:
    return ProtocolError(
        "handoff_failed",
        "no person could be reached; try again",
        kind="server_error",
        retriable=True,
        retry_after_ms=_RETRY_AFTER_MS,
    )


def _send_created(connection: Connection, handoff: Handoff, event_id: str | None = None) -> None:
    connection.put(
        HandoffCreated(
            handoff_id=handoff.id, reason=handoff.reason, created_at=handoff.created_unix_ms, event_id=event_id
        )
    )
    connection.flush()
