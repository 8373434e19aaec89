"""A question off the shop's topic is not quoted an entry that happens to share words with it."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from ops.evaluation.decision.corpora import corpora
from shared.conversation.turn import Turn
from shared.faq import FaqEntry, FaqHit, FaqIndex, Language
from shared.faq.answer_policy import AnswerPolicy, Clarify, Decision, Quote, Unknown
from shared.faq.decision.relation import least_relation, off_topic, relation_of
from shared.faq.decision.sureness import Thresholds
from shared.faq.entries import LANGUAGES
from shared.faq.fallback import choose_fallback
from shared.faq.terms import wording

INDEX = FaqIndex.load()
ENTRY = INDEX.entries[0]
LEAST = 60


def decided(question: str, thresholds: Thresholds | None = None) -> Decision:
    policy = AnswerPolicy(languages=()) if thresholds is None else AnswerPolicy(languages=(), thresholds=thresholds)
    return policy.decide(question, INDEX.find(question, k=2).hits)


@pytest.mark.parametrize("language", LANGUAGES)
def test_off_topic_questions_are_many_and_of_no_set(language: Language) -> None:
    questions = [wording(question) for question in off_topic()[language]]
    asked = {wording(question.question) for corpus in corpora() for question in corpus.questions}
    assert len(set(questions)) == len(questions) >= LEAST
    assert not asked & set(questions)


@pytest.mark.parametrize(
    "question",
    ["What is the capital of France?", "Who won the world cup in 2018?", "How do I bake bread?", "今天天气怎么样"],
)
def test_a_question_off_the_topic_gets_no_quote(question: str) -> None:
    hits = INDEX.search(question, k=2)
    assert hits[0].score >= 0.15
    assert isinstance(decided(question), Unknown)
    assert choose_fallback(question, hits, min_score=0.1).source == "busy"


@pytest.mark.parametrize("question", ["给我唱一首歌", "给我写一首诗"])
def test_by_terms_alone_too_low_a_score_gets_no_quote(question: str) -> None:
    assert 0 < INDEX.search(question, k=2)[0].score < 0.15
    assert isinstance(decided(question), Unknown)


def test_a_weak_score_that_is_set_decides_alone() -> None:
    assert isinstance(decided("What is the capital of France?", Thresholds(confident=0.5, weak=0.1)), Quote)
    assert isinstance(decided("Do you ship to Norway?", Thresholds(confident=1.0, weak=1.0)), Unknown)


def test_a_bare_topic_and_a_follow_up_are_not_compared_with_whole_questions() -> None:
    assert isinstance(decided("shipping"), Clarify)
    before = Turn(
        request_id="r",
        user="Do you ship abroad?",
        output_text=ENTRY.answer,
        source="faq",
        asked_unix_ms=0,
        grounding=(),
    )
    assert INDEX.search("And to Norway?", k=2, previous=[before])[0].related


@pytest.mark.parametrize(
    ("word", "related"), [("shipping", True), ("shiping", True), ("kjhkjh", False), ("Danke", False)]
)
def test_a_bare_word_that_no_entry_has_is_compared_with_whole_questions(word: str, *, related: bool) -> None:
    """By embeddings even letters that form no word are near some entry."""
    alike = np.full(4, 0.5, np.float32)

    def embed(texts: Sequence[str], language: Language) -> NDArray[np.float32]:
        return np.stack([alike] * len(texts))

    assert FaqIndex(INDEX.entries, embed).search(word, k=2, vector=alike)[0].related is related


def test_two_thirds_of_the_off_topic_questions_stay_below_the_least_relation() -> None:
    hits = [FaqHit(ENTRY, score / 10, sureness=0.1) for score in range(5)]
    assert least_relation(hits) == relation_of(hits[3])
    assert least_relation([*hits, None, None, None]) == relation_of(hits[2])
    assert least_relation([hits[0], None]) == relation_of(hits[0])
    assert least_relation([None, None, hits[0]]) == -math.inf


@pytest.mark.parametrize("question", ["Do you ship to Japan?", "do you deliver abroad to Iceland"])
def test_a_name_that_the_entry_lacks_does_not_make_it_unrelated(question: str) -> None:
    assert isinstance(decided(question), Quote)


def test_a_faq_of_general_knowledge_still_quotes_what_fits_half() -> None:
    known = FaqHit(ENTRY, 1.0, sureness=1.0)
    assert least_relation([known, known]) <= relation_of(FaqHit(ENTRY, 0.5, sureness=0.5))


@pytest.mark.parametrize("answer", ["We deliver in 3 days.", "Yes"])
def test_a_faq_of_one_entry_quotes_it_and_knows_nothing_else(answer: str) -> None:
    entry = FaqEntry(
        id="only",
        topic="delivery",
        language="en",
        question="How long does delivery take?",
        alternatives=(),
        answer=answer,
    )
    index, policy = FaqIndex([entry]), AnswerPolicy(languages=())
    for question, kind in (("How fast is the delivery?", Quote), ("What is the capital of France?", Unknown)):
        assert isinstance(policy.decide(question, index.find(question, k=2).hits), kind)
