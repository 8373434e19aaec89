"""Choose the answer that a customer gets if the model cannot answer before the deadline: a matching FAQ entry, a quote
from one, or the text "please try again". Pure."""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from shared.faq import FaqHit, Language, detect_language
from shared.faq.decision.sureness import FITTED, sureness_of
from shared.faq.speech.words import WaysOn, busy_text, can_answer, claimed, quote_text
from shared.wire.outcome import Grounding

# Fitted on the questions of tests/support/samples/faq_questions.py, as about the highest that still answers nine shop
# questions in ten: 116 of 124 get their answer, 6 another, 2 "busy", and 3 of 50 messages off the topic get an answer.
# On questions that it was not fitted on: 55 of 65, 7, 3, and 2 of 30. A higher value says "busy" to more customers
# whose question the FAQ could have answered.
DEFAULT_MIN_SCORE: Final = 0.4

_NONE: Final = WaysOn()


class Fallback(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that no model wrote. `grounding` are the FAQ entries that it quotes; empty when it quotes none. At an
    edge they are of `faq_version`."""

    source: Literal["faq", "quote", "clarify", "courtesy", "unsure", "busy", "handoff"]
    text: str
    language: Language
    grounding: tuple[Grounding, ...] = ()
    faq_version: int | None = None


def choose_fallback(
    question: str,
    hits: Sequence[FaqHit],
    *,
    min_score: float = DEFAULT_MIN_SCORE,
    confident: float = FITTED.confident,
    ways_on: WaysOn = _NONE,
    language: Language | None = None,
) -> Fallback:
    """Return the FAQ's answer, which replaces the model's.

    Args:
        question: the customer's message.
        hits: the entries found for it.
        min_score: the least score of an entry that is shown; below it, or if it is not related, the answer is "busy".
        confident: the least sureness of an entry that answers; below it the entry is quoted.
        ways_on: what the customer can do where no entry answers.
        language: the conversation's, by default the question's.
    """
    language = language or detect_language(question)
    ranked = sorted(hits, key=lambda hit: -hit.score)
    if not ranked or ranked[0].score < min_score or not ranked[0].related:
        return Fallback(source="busy", text=busy_text(language, ways_on), language=language)
    best = ranked[0]
    if sureness_of(ranked) < confident or not can_answer(best):
        text, grounding = quote_text([best], language, ways_on), best.entry.as_grounding()
        return Fallback(source="quote", text=text, language=best.entry.language, grounding=(grounding,))
    entry = claimed(best)
    return Fallback(source="faq", text=entry.answer, language=entry.language, grounding=(entry.as_grounding(),))
