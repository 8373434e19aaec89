"""If the model is late, the FAQ answers if it matches the question, and otherwise "busy" is returned."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.faq import FaqEntry, FaqHit, FaqIndex, detect_language
from shared.faq.fallback import DEFAULT_MIN_SCORE, Fallback, choose_fallback
from shared.faq.speech.words import OFFER, WaysOn
from tests.support.samples.faq_questions import (
    CHINESE_OFF_TOPIC,
    CHINESE_QUESTIONS,
    ENGLISH_OFF_TOPIC,
    ENGLISH_QUESTIONS,
    UNSEEN_OFF_TOPIC,
    UNSEEN_QUESTIONS,
)

INDEX = FaqIndex.load()
ENTRY = FaqEntry(
    id="refund-time", topic="refunds", language="en", question="When?", alternatives=(), answer="Within 5 days."
)
OTHER = FaqEntry(id="other", topic="refunds", language="en", question="What?", alternatives=(), answer="That.")


def fallback_to(question: str) -> Fallback:
    return choose_fallback(question, INDEX.search(question), min_score=DEFAULT_MIN_SCORE)


def entry_id_of(fallback: Fallback) -> str | None:
    return fallback.grounding[0].id if fallback.grounding else None


def test_the_best_hit_answers_when_it_reaches_the_least_score() -> None:
    chosen = choose_fallback(
        "when", [FaqHit(ENTRY, 0.5, sureness=0.5), FaqHit(OTHER, 0.4)], min_score=0.5, confident=0.5
    )
    assert (chosen.source, chosen.text, chosen.language) == ("faq", "Within 5 days.", "en")
    assert entry_id_of(chosen) == "refund-time"


def test_the_best_hit_answers_in_whatever_order_hits_come() -> None:
    chosen = choose_fallback("when", [FaqHit(OTHER, 0.4), FaqHit(ENTRY, 0.5, sureness=0.5)], min_score=0.1)
    assert entry_id_of(chosen) == "refund-time"


def test_a_hit_below_the_least_score_does_not_answer() -> None:
    chosen = choose_fallback("when", [FaqHit(ENTRY, 0.49)], min_score=0.5)
    assert (chosen.source, entry_id_of(chosen)) == ("busy", None)


@pytest.mark.parametrize(
    ("question", "language", "says"), [("sing a song", "en", "busy"), ("唱首歌", "zh", "稍后"), ("", "en", "busy")]
)
def test_busy_is_returned_in_the_language_of_the_question(question: str, language: str, says: str) -> None:
    chosen = choose_fallback(question, [], min_score=0.5)
    assert (chosen.source, chosen.language) == ("busy", language)
    assert says in chosen.text
    assert detect_language(chosen.text) == language


@pytest.mark.parametrize(
    ("question", "line"), [("sing a song", "Help: help.example, 9:00 to 17:00."), ("唱首歌", "帮助：help.example。")]
)
@pytest.mark.parametrize("hits", [[], [FaqHit(ENTRY, 0.5)]], ids=["busy", "quote"])
def test_where_no_entry_answers_it_says_what_can_be_done(question: str, line: str, hits: list[FaqHit]) -> None:
    language = detect_language(question)
    bare = choose_fallback(question, hits)
    chosen = choose_fallback(question, hits, ways_on=WaysOn(handoff=True, contact={language: line}))
    assert chosen.source == bare.source == ("quote" if hits else "busy")
    added = chosen.text.removeprefix(bare.text).split("\n\n")[1:]
    assert added == ([] if hits else [line]) + [OFFER[language]]


@pytest.mark.parametrize("questions", [ENGLISH_QUESTIONS, CHINESE_QUESTIONS], ids=["english", "chinese"])
def test_most_shop_questions_get_their_answer_and_few_a_wrong_one(questions: tuple[tuple[str, str], ...]) -> None:
    answered = [(entry_id_of(fallback_to(question)), wanted) for question, wanted in questions]
    assert sum(entry_id == wanted for entry_id, wanted in answered) / len(answered) >= 0.85
    assert sum(entry_id not in {wanted, None} for entry_id, wanted in answered) / len(answered) <= 0.1


@pytest.mark.parametrize("messages", [ENGLISH_OFF_TOPIC, CHINESE_OFF_TOPIC], ids=["english", "chinese"])
def test_most_off_topic_messages_get_busy(messages: tuple[str, ...]) -> None:
    assert sum(fallback_to(message).source == "busy" for message in messages) / len(messages) >= 0.85


def test_the_least_score_holds_on_messages_it_was_not_fitted_on() -> None:
    answered = [(entry_id_of(fallback_to(question)), wanted) for question, wanted in UNSEEN_QUESTIONS]
    assert sum(entry_id in wanted for entry_id, wanted in answered) / len(answered) >= 0.75
    assert sum(entry_id is not None and entry_id not in wanted for entry_id, wanted in answered) / len(answered) <= 0.11
    assert sum(fallback_to(message).source == "busy" for message in UNSEEN_OFF_TOPIC) / len(UNSEEN_OFF_TOPIC) >= 0.8


def test_a_hit_that_is_not_sure_is_quoted() -> None:
    chosen = choose_fallback(
        "when", [FaqHit(ENTRY, 0.5, sureness=0.5), FaqHit(OTHER, 0.4)], min_score=0.4, confident=0.6
    )
    assert (chosen.source, chosen.text, entry_id_of(chosen)) == (
        "quote",
        "About “When?”: Within 5 days.",
        "refund-time",
    )


@given(st.text(), st.floats(min_value=0, max_value=1))
def test_a_fallback_always_has_a_text(question: str, min_score: float) -> None:
    chosen = choose_fallback(question, INDEX.search(question), min_score=min_score)
    assert chosen.text.strip()
    assert (chosen.source in {"faq", "quote"}) == (entry_id_of(chosen) is not None)
