"""Sets that test a decision reveal nothing by style; near misses come with the sentence that would answer them."""

from collections import Counter

import numpy as np
import pytest

from ops.evaluation.decision.boosting import Boosting, fit_trees
from ops.evaluation.decision.corpora import Corpus, corpora, rounds_of, told
from ops.evaluation.decision.generator import near_misses, templates, topic_of
from ops.evaluation.decision.style import MOST, question_only_auc
from shared.faq import FaqEntry
from shared.faq.decision.trees import Trees

SHOPS = corpora()
TWO_SIDED = [corpus for corpus in SHOPS if any(question.tell is not None for question in corpus.questions)]


def test_the_committed_sets_are_as_many_as_the_page_says() -> None:
    questions = [question for corpus in SHOPS for question in corpus.questions]
    assert sum(question.answerable for question in questions) >= 1_000
    assert sum(not question.answerable and question.kind != "small_talk" for question in questions) >= 1_000
    assert sum(corpus.name != "demo" for corpus in SHOPS) >= 6
    assert {question.split for question in questions} == {"dev", "held_out"}


def test_follow_ups_are_of_three_shops_and_half_of_them_held_out() -> None:
    asked = [question for corpus in SHOPS for question in corpus.follow_ups]
    assert len(asked) >= 75
    assert all(question.kind == "follow_up" and question.history for question in asked)
    assert sum(question.split == "held_out" for question in asked) * 2 >= len(asked)
    assert sum(bool(corpus.follow_ups) for corpus in SHOPS) >= 3


@pytest.mark.parametrize("corpus", TWO_SIDED, ids=lambda corpus: corpus.name)
def test_two_sided_questions_tell_nothing_by_style(corpus: Corpus) -> None:
    """Each near miss with its sentence is on both sides: once without, once with it."""
    near = [question for question in corpus.questions if question.near is not None and question.tell is not None]
    sides = [(question.near, question.question, there) for question in near for there in (False, True)]
    assert question_only_auc(*zip(*sides, strict=True)) <= MOST


def test_a_style_that_tells_is_found() -> None:
    questions = [f"kindly {word}" if number % 2 else f"oi {word}" for number, word in enumerate("abcdefghij" * 4)]
    answerable = [number % 2 == 1 for number in range(len(questions))]
    assert question_only_auc(range(len(questions)), questions, answerable) > MOST


def test_of_any_faq_a_thousand_near_misses_come_with_the_entry_that_must_not_be_told() -> None:
    made = list(near_misses(SHOPS[0].entries))
    assert len(made) >= 1_000
    assert Counter((each.category, each.strength) for each in templates()).most_common(1)[0][1] == 1
    known = {(entry.id, entry.language) for entry in SHOPS[0].entries}
    assert all((question.near, question.language) in known and question.tell for question in made)
    assert len({(question.language, question.question) for question in made}) > 0.95 * len(made)


@pytest.mark.parametrize(
    ("question", "topic"),
    [("Where can I see the status of my order?", "the status of my order"), ("Do you sell phones?", "phones")],
)
def test_a_topic_is_in_the_entrys_words(question: str, topic: str) -> None:
    entry = FaqEntry(id="e", topic="t", language="en", question=question, alternatives=(), answer="a")
    assert topic_of(entry) == topic


def test_rounds_have_each_entry_once_and_told_adds_the_sentence() -> None:
    corpus = next(corpus for corpus in SHOPS if corpus.name == "garden")
    rounds = list(rounds_of(corpus.questions))
    assert sum(map(len, rounds)) == sum(question.tell is not None for question in corpus.questions)
    first = rounds[0][0]
    with_it = told(corpus.entries, {(first.near or "", first.language): first.tell or ""})
    changed = [new for old, new in zip(corpus.entries, with_it, strict=True) if old != new]
    assert [(entry.id, entry.language) for entry in changed] == [(first.near, first.language)]
    assert changed[0].answer.endswith(first.tell or "")


def test_trees_learn_what_two_measures_say_together_and_are_read_as_they_were_fitted() -> None:
    draw = np.random.default_rng(0)
    rows = draw.random((600, 3))
    labels = ((rows[:, 0] > 0.5) ^ (rows[:, 1] > 0.5)).astype(float)
    forest = fit_trees(rows, labels, np.ones(600), ("a", "b", "c"), Boosting(trees=60, depth=3, rate=0.3))
    logits = Trees.of(forest).logits(rows)
    assert ((logits > 0) == (labels > 0)).mean() > 0.95
