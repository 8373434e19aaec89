"""Keep each session's latest answers and their ratings. Pure and bounded.

They determine whether a client may rate an answer, how many answers in a row did not help, and which answers to show to
a person who takes over.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, Literal

from gateway.request.entry import Entry
from shared.errors import ProtocolError
from shared.faq.answer_policy import offers_person
from shared.faq.terms import language_within
from shared.faq.words.fold import plain
from shared.wire.messages import Feedback, Language, RatingReason
from shared.wire.outcome import Response, Source
from shared.wire.session_key import SessionKey

MAX_ANSWERS: Final = 50_000
MAX_OF_A_SESSION: Final = 20
_CHARS_OF_A_LANGUAGE: Final = 80
_NEITHER: Final[frozenset[Source]] = frozenset({"courtesy", "quote", "clarify", "unsure"})
Verdict = Literal["resolved", "unresolved"]


@dataclass(slots=True)
class _Answer:
    id: str
    source: Source
    offers: bool
    """The answer offered a person."""
    opening: str
    """How it begins, by which its language is known."""
    verdict: Verdict | None = None
    reason: RatingReason | None = None


@dataclass(slots=True)
class _Session:
    answers: dict[str, _Answer] = field(default_factory=dict)
    fallbacks: int = 0


@dataclass(frozen=True, slots=True)
class Known:
    """How many answers in a row did not help, including this one, and whether this is the conversation's first answer
    at this gateway."""

    fallbacks: int
    first: bool


@dataclass(frozen=True, slots=True)
class Rated:
    """The rating of an answer.

    Attributes:
        verdict: the rating that counts now
        before: the one before; None if there was none
        reason: the reason, if it has changed
    """

    source: Source
    verdict: Verdict
    before: Verdict | None
    reason: RatingReason | None


def verdict_of(feedback: Feedback) -> Verdict | None:
    """Return whether the answer solved the problem: by `resolved`, or else by the rating."""
    if feedback.resolved is not None:
        return "resolved" if feedback.resolved else "unresolved"
    if feedback.rating is not None:
        return "resolved" if feedback.rating == "up" else "unresolved"
    return None


class SessionAnswers:
    """Owned by the gateway's event loop. Keeps the last `max_of_a_session` answers of each session and at most
    `max_answers` altogether; the sessions silent for longest are forgotten first."""

    def __init__(self, max_answers: int = MAX_ANSWERS, max_of_a_session: int = MAX_OF_A_SESSION) -> None:
        self._max_answers = max_answers
        self._max_of_a_session = max_of_a_session
        self._sessions: OrderedDict[SessionKey, _Session] = OrderedDict()
        self._num_answers = 0

    def __len__(self) -> int:
        """Return the number of answers kept."""
        return self._num_answers

    def answered(self, key: SessionKey, response: Response, *, stood_in: bool = False) -> Known:
        """Record that an answer has ended. `stood_in`: no worker gave it in time. Cancelled or failed answers,
        greetings, quotes and questions back do not count as fallbacks and do not reset the count."""
        first = key not in self._sessions
        session = self._sessions.setdefault(key, _Session())
        self._sessions.move_to_end(key)
        if response.id not in session.answers:
            text = response.output_text
            session.answers[response.id] = _Answer(
                response.id, response.source, offers_person(text), text[:_CHARS_OF_A_LANGUAGE]
            )
            self._num_answers += 1
            if stood_in or (response.source == "unsure" and not response.grounding):
                session.fallbacks += 1
            elif response.status not in {"cancelled", "failed"} and response.source not in _NEITHER:
                session.fallbacks = 0
        self._forget_oldest(session)
        return Known(session.fallbacks, first)

    def handed_over(self, key: SessionKey) -> None:
        """Reset the count of fallbacks after a hand-off was opened."""
        session = self._sessions.get(key)
        if session is not None:
            session.fallbacks = 0

    def response_ids(self, key: SessionKey) -> tuple[str, ...]:
        """Return the ids of the kept answers, oldest first."""
        session = self._sessions.get(key)
        return () if session is None else tuple(session.answers)

    def last(self, key: SessionKey) -> _Answer | None:
        """Return the last answer that this gateway ended in a session; None for an unknown session."""
        session = self._sessions.get(key)
        return session.answers[next(reversed(session.answers))] if session and session.answers else None

    def language_of(self, entry: Entry) -> Language:
        """Return the language of a question; of one without letters, such as 👍 or a number, that of the conversation:
        of the turns sent with it, or else of this gateway's last answers in it."""
        asked = entry.request.asked
        if asked is not None and asked.turns is not None:
            return language_within(plain(entry.input), [turn.user for turn in reversed(asked.turns)])
        session = self._sessions.get(entry.request.session)
        answers = [] if session is None else list(session.answers.values())
        return language_within(plain(entry.input), [answer.opening for answer in reversed(answers)])

    def rate(self, key: SessionKey, feedback: Feedback) -> Rated:
        """Rate an answer; the last rating counts. Raises `ProtocolError` if the answer is not one of the session's kept
        answers, or if the feedback has no rating."""
        verdict = verdict_of(feedback)
        if verdict is None:
            raise ProtocolError("invalid_field", "feedback needs a rating (up, down) or resolved", param="rating")
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
        """Forget an erased conversation."""
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
