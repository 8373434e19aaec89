"""What a customer has of people: the hand-offs that are asked for or due, and what is thought of the answers."""

from dataclasses import dataclass, field
from typing import Final, Literal

from gateway.background import Background
from gateway.connection import Connection, refuse
from gateway.entry import Entry
from gateway.handoff_wish import wants_person
from gateway.handoffs import Handoffs, Outcome
from gateway.local_quota import LocalQuota
from gateway.session_answers import SessionAnswers
from shared import metrics
from shared.clock import now_unix_ms
from shared.errors import ProtocolError
from shared.fallback import Fallback
from shared.faq import detect_language
from shared.faults import contained
from shared.gateway_settings import HandoffSettings
from shared.handoffs import Handoff
from shared.logs import get_logger
from shared.messages import (
    Feedback,
    FeedbackRecorded,
    HandoffCreated,
    HandoffReason,
    HandoffRequest,
    Language,
    Response,
)

log = get_logger()

_RETRY_AFTER_MS: Final = 5_000
_SAID: Final[dict[Literal["created", "open", "failed"], dict[Language, str]]] = {
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
class Care:
    """Owned by the gateway's event loop."""

    settings: HandoffSettings
    handoffs: Handoffs
    answers: SessionAnswers = field(default_factory=SessionAnswers)
    _asked: LocalQuota = field(default_factory=LocalQuota)
    _due: LocalQuota = field(default_factory=LocalQuota)
    _beside: Background = field(default_factory=Background)

    def __len__(self) -> int:
        """What goes on beside."""
        return len(self._beside)

    def received(self, connection: Connection, message: HandoffRequest | Feedback) -> None:
        """Raises `ProtocolError` where it is not taken."""
        if isinstance(message, Feedback):
            self._rated(connection, message)
        else:
            self._requested(connection, message)

    # --- a client comes back

    def came_back(self, connection: Connection) -> None:
        """It is told what it may not have heard: that a person has been asked."""
        if self.settings.enabled:
            self._beside.start(self._tell_open(connection))

    async def _tell_open(self, connection: Connection) -> None:
        found = await self.handoffs.find(connection.session.tenant, connection.session.conversation_id)
        if found is not None:
            _tell(connection, found)

    # --- a person is asked for

    def _requested(self, connection: Connection, request: HandoffRequest) -> None:
        """By the client's own message. Raises `ProtocolError`."""
        session = connection.session
        if not self.settings.enabled:
            raise ProtocolError("handoff_not_offered", "nobody is there to take over; ask your question here")
        self._count_request(session.tenant, session.conversation_id, "requested")
        self._beside.start(self._request(connection, request))

    async def _request(self, connection: Connection, request: HandoffRequest) -> None:
        session = connection.session
        outcome = await self._open(session.tenant, session.conversation_id, "requested", request.language)
        if outcome.handoff is not None:
            _tell(connection, outcome.handoff, request.event_id)
            return
        error = ProtocolError(
            "handoff_failed",
            "nobody could be reached, and nobody has been asked; try again",
            kind="server_error",
            retriable=True,
            retry_after_ms=_RETRY_AFTER_MS,
        )
        refuse(connection, error, request.event_id)
        connection.flush()

    async def wished(self, entry: Entry, connection: Connection | None) -> Fallback | None:
        """In the words of a question: what that is answered; None where it is any other question. Raises
        `ProtocolError` where there are too many of them."""
        if not self.settings.enabled or not wants_person(entry.input):
            return None
        self._count_request(entry.tenant, entry.session_id, "text")
        language = detect_language(entry.input)
        outcome = await self._open(entry.tenant, entry.session_id, "text", language)
        if outcome.handoff is None:
            entry.fallback = "broker"
            metrics.fallbacks.labels("broker").inc()
            return Fallback(source="busy", text=_SAID["failed"][language], language=language)
        if connection is not None:
            _tell(connection, outcome.handoff)
        said = _SAID["open" if outcome.was_open else "created"][language]
        return Fallback(source="handoff", text=said, language=language)

    def _count_request(self, tenant: str, session_id: str, reason: HandoffReason) -> None:
        """Raises `ProtocolError` where it is one too many of the session."""
        per_minute = self.settings.requests_per_minute
        wait_ms = self._asked.take(f"{tenant}/{session_id}", per_minute, now_unix_ms())
        if wait_ms > 0:
            metrics.handoffs.labels(reason, "limited").inc()
            wait_whole_ms = int(wait_ms) + 1
            raise ProtocolError(
                "rate_limited",
                f"a person was asked for more than {per_minute} times a minute; wait {wait_whole_ms} ms",
                kind="rate_limit_error",
                retriable=True,
                retry_after_ms=wait_whole_ms,
            )

    # --- or is due

    def ended(self, entry: Entry, response: Response, connection: Connection | None) -> None:
        """An answer has ended; after so many that did not help somebody takes over."""
        known = self.answers.answered(entry.tenant, entry.session_id, response, stood_in=entry.stood_in)
        if known.first:
            metrics.conversations.inc()
        after = self.settings.after_fallbacks
        if self.settings.enabled and after and known.fallbacks >= after:
            self._beside.start(self._after_fallbacks(entry, connection))

    async def _after_fallbacks(self, entry: Entry, connection: Connection | None) -> None:
        """Nobody has asked for it: where it does not come about, nothing is said of it. Where a person has been asked
        already it is not counted."""
        per_minute = self.settings.fallback_handoffs_per_minute
        is_open = await self.handoffs.find(entry.tenant, entry.session_id) is not None
        if not is_open and per_minute and self._due.take("", per_minute, now_unix_ms()) > 0:
            metrics.handoffs.labels("fallbacks", "limited").inc()
            return
        outcome = await self._open(entry.tenant, entry.session_id, "fallbacks", detect_language(entry.input))
        if outcome.handoff is not None and not outcome.was_open and connection is not None:
            _tell(connection, outcome.handoff)

    async def _open(self, tenant: str, session_id: str, reason: HandoffReason, language: Language) -> Outcome:
        response_ids = self.answers.response_ids(tenant, session_id)
        outcome = Outcome(None)
        with contained("handoff"):  # then nobody has been asked, and that is said
            outcome = await self.handoffs.open(tenant, session_id, reason, language, response_ids)
        said = "failed" if outcome.handoff is None else "open" if outcome.was_open else "created"
        metrics.handoffs.labels(reason, said).inc()
        if outcome.handoff is not None:
            self.answers.handed_over(tenant, session_id)
        return outcome

    # --- what is thought of an answer

    def _rated(self, connection: Connection, feedback: Feedback) -> None:
        """Counted once an answer, as it was rated last. Raises `ProtocolError`."""
        session = connection.session
        rated = self.answers.rate(session.tenant, session.conversation_id, feedback)
        if rated.verdict != rated.before:
            if rated.before is not None:
                metrics.feedback.labels(rated.source, rated.before, "taken_back").inc()
            metrics.feedback.labels(rated.source, rated.verdict, "given").inc()
            log.info("rated", request_id=feedback.response_id, source=rated.source, verdict=rated.verdict)
        if rated.reason is not None:
            metrics.feedback_reasons.labels(rated.reason).inc()
        connection.put(
            FeedbackRecorded(
                response_id=feedback.response_id,
                event_id=feedback.event_id,
                rating=feedback.rating,
                resolved=feedback.resolved,
                reason=feedback.reason,
            )
        )

    def forget(self, tenant: str, session_id: str) -> None:
        """The conversation is erased."""
        self.answers.forget(tenant, session_id)
        self.handoffs.forget(tenant, session_id)


def _tell(connection: Connection, handoff: Handoff, event_id: str | None = None) -> None:
    connection.put(
        HandoffCreated(
            handoff_id=handoff.id, reason=handoff.reason, created_at=handoff.created_unix_ms, event_id=event_id
        )
    )
    connection.flush()
