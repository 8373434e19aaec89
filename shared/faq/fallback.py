"""Answer where no model does: by an FAQ entry, or "busy, please try again" where it comes too late. Pure."""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from shared.faq import FaqHit, Language, detect_language
from shared.wire.outcome import Grounding

# Fitted on the questions of tests/support/samples/faq_questions.py, as about the highest that still answers nine shop
# questions in ten: 116 of 124 get their answer, 6 another, 2 "busy", and 3 of 50 messages off the topic get an answer.
# On questions that it was not fitted on: 55 of 65, 7, 3, and 2 of 30. A higher value says "busy" to more customers
# whose question the FAQ could have answered.
DEFAULT_MIN_SCORE: Final = 0.4

_BUSY: Final[dict[Language, str]] = {
    "en": "Sorry, we are very busy right now. Please ask me again in a moment.",
    "zh": "抱歉，现在咨询的人较多。请稍后再试一次。",
}
BUSY: Final = frozenset(_BUSY.values())


class Fallback(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that no model wrote. `grounding` are the FAQ entries that it quotes; empty when it quotes none. At an
    edge they are of `faq_version`."""

    source: Literal["faq", "courtesy", "unsure", "busy", "handoff"]
    text: str
    language: Language
    grounding: tuple[Grounding, ...] = ()
    faq_version: int | None = None


def choose_fallback(question: str, hits: Sequence[FaqHit], *, min_score: float = DEFAULT_MIN_SCORE) -> Fallback:
    """Return the best hit's answer if its score is at least `min_score`; else "busy" in the question's own language."""
    best = max(hits, key=lambda hit: hit.score, default=None)
    if best is None or best.score < min_score:
        language = detect_language(question)
        return Fallback(source="busy", text=_BUSY[language], language=language)
    entry = best.entry
    return Fallback(source="faq", text=entry.answer, language=entry.language, grounding=(entry.as_grounding(),))
