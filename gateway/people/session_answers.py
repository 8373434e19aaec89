"""Keep each session's latest answers and their ratings: pure, and bounded.

They decide whether a client may rate an answer, how many answers in a row did not help, and which answers a person who
takes over should see.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, Literal

from shared.errors import ProtocolError
from shared.faq.answer_policy import offers_person
from shared.wire.messages import Feedback, RatingReason
from shared.wire.outcome import Response, Source
from shared.wire.session_key import SessionKey

MAX_ANSWERS: Final = 50_000
MAX_OF_A_SESSION: Final = 20
Verdict = Literal["resolved", "unresolved"]


@dataclass(slots=True)
class _Answer:
    id: str
    source: Source
    offers: bool
    """It offered a person."""
    verdict: Verdict | None = None
    reason: RatingReason | None = None


@dataclass(slots=True)
class _Session:
    answers: dict[str, _Answer] = field(default_factory=dict)
    fallbacks: int = 0


@dataclass(frozen=True, slots=True)
class Known:
    """`fallbacks` in a row, this answer included, and answers that nothing is known; `first`: the conversation's first
    here."""

    fallbacks: int
    first: bool


@dataclass(frozen=True, slots=True)
class Rated:
    """The rating that counts now, and the one before; None where there was none. `reason` is set where it has
    changed."""

    source: Source
    verdict: Verdict
    before: Verdict | None
    reason: RatingReason | None


def verdict_of(feedback: Feedback) -> Verdict | None:
    """Return whether the answer settled the matter: by `resolved`, else by the rating."""
    if feedback.resolved is not None:
        return "resolved" if feedback.resolved else "unresolved"
    if feedback.rating is not None:
        return "resolved" if feedback.rating == "up" else "unresolved"
    return None


class SessionAnswers:
    """Owned by the gateway's event loop. Of all sessions together at most `max_answers` are remembered, the sessions
    that were silent for longest forgotten first; of one session its last `max_of_a_session`."""

    def __init__(self, max_answers: int = MAX_ANSWERS, max_of_a_session: int = MAX_OF_A_SESSION) -> None:
        self._max_answers = max_answers
        self._max_of_a_session = max_of_a_session
        self._sessions: OrderedDict[SessionKey, _Session] = OrderedDict()
        self._num_answers = 0

    def __len__(self) -> int:
        """Answers that are remembered."""
        return self._num_answers

    def answered(self, key: SessionKey, response: Response, *, stood_in: bool = False) -> Known:
        """Note that an answer has ended. `stood_in`: no worker gave it in time. A cancelled or failed answer, a
        greeting, or an offer of entries that may help counts neither way."""
        first = key not in self._sessions
        session = self._sessions.setdefault(key, _Session())
        self._sessions.move_to_end(key)
        if response.id not in session.answers:
            session.answers[response.id] = _Answer(response.id, response.source, offers_person(response.output_text))
            self._num_answers += 1
            if stood_in or (response.source == "unsure" and not response.grounding):
                session.fallbacks += 1
            elif response.status not in {"cancelled", "failed"} and response.source not in {"courtesy", "unsure"}:
                session.fallbacks = 0
        self._forget_oldest(session)
        return Known(session.fallbacks, first)

    def handed_over(self, key: SessionKey) -> None:
        """Note that a person was asked, and count fallbacks from 0 again."""
        session = self._sessions.get(key)
        if session is not None:
            session.fallbacks = 0

    def response_ids(self, key: SessionKey) -> tuple[str, ...]:
        """Return the ids of the last answers, oldest first."""
        session = self._sessions.get(key)
        return () if session is None else tuple(session.answers)

    def last(self, key: SessionKey) -> _Answer | None:
        """Return the answer that this gateway ended last in a session; None for an unknown session."""
        session = self._sessions.get(key)
        return session.answers[next(reversed(session.answers))] if session and session.answers else None

    def rate(self, key: SessionKey, feedback: Feedback) -> Rated:
        """Rate an answer; the last rating counts. Raises `ProtocolError` for an answer that is not the session's or is
        no longer kept, and for feedback without a rating."""
        verdict = verdict_of(feedback)
        if verdict is None:
            raise ProtocolError("invalid_field", "feedback has a rating (up, down), or resolved", param="rating")
        session = self._sessions.get(key)
        answer = session.answers.get(feedback.response_id) if session is not None else None
        if answer is None:
            raise ProtocolError(
                "unknown_response",
                f"no answer {feedback.response_id!r} of this session has ended here, or not among its last "
                f"{self._max_of_a_session}; rate one of those",
                param="response_id",
            )
        self._sessions.move_to_end(key)
        reason = feedback.reason if feedback.reason != answer.reason else None
        rated = Rated(answer.source, verdict, answer.verdict, reason)
        answer.verdict, answer.reason = verdict, feedback.reason
        return rated

    def forget(self, key: SessionKey) -> None:
        """Forget a conversation that is erased."""
        session = self._sessions.pop(key, None)
        if session is not None:
            self._num_answers -= len(session.answers)

    def _forget_oldest(self, session: _Session) -> None:
        while len(session.answers) > self._max_of_a_session:
            del session.answers[next(iter(session.answers))]
            self._num_answers -= 1
        while self._num_answers > self._max_answers:
            _, silent = self._sessions.popitem(last=False)
            self._num_answers -= len(silent.answers)
