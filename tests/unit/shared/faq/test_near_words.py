"""Each word of a question is compared with an entry's words; the entry may lack what is asked by any other name."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from shared.faq import FaqEntry
from shared.faq.decision.near_words import BY_WORDS, NearWords

DIRECTIONS = {"sofa": 0, "furniture": 0, "deliver": 1, "bring": 1, "price": 2}


def embed(words: Sequence[str]) -> NDArray[np.float32]:
    """Return equal vectors for words of one meaning, and orthogonal ones for any others."""
    vectors = np.eye(4, dtype=np.float32)
    return np.stack([vectors[DIRECTIONS.get(word, 3)] for word in words])


def entry(question: str, answer: str) -> FaqEntry:
    return FaqEntry(id="e", topic="t", language="en", question=question, alternatives=(), answer=answer)


def measured(question: str) -> dict[str, float]:
    asked = entry("Do you deliver furniture?", "We deliver furniture.")
    return NearWords(embed).measure(question, asked, lambda word: 1.0)


def test_other_words_of_the_same_meaning_are_near() -> None:
    assert measured("bring sofa") == pytest.approx(measured("deliver furniture"))
    assert measured("bring sofa")["word_least"] == pytest.approx(1.0)


def test_a_word_that_the_entry_lacks_is_far() -> None:
    assert measured("sofa price")["word_lacking"] > measured("sofa")["word_lacking"]
    assert measured("sofa price")["word_least"] == pytest.approx(0.0)


@pytest.mark.parametrize("question", ["", "?", "🙂", "the"])
def test_a_question_without_words_measures_nothing(question: str) -> None:
    assert measured(question) == dict.fromkeys(BY_WORDS, 0.0)


def test_an_entry_without_words_measures_nothing() -> None:
    words = NearWords(embed)
    assert words.measure("sofa", entry("?", "…"), lambda word: 1.0) == dict.fromkeys(BY_WORDS, 0.0)


def test_customers_words_are_not_kept() -> None:
    asked: list[str] = []

    def counting(words: Sequence[str]) -> NDArray[np.float32]:
        asked.extend(words)
        return embed(words)

    near = NearWords(counting)
    for _ in range(2):
        near.measure("sofa", entry("Do you deliver?", "We deliver."), lambda word: 1.0)
    assert asked == ["deliver", "sofa", "sofa"]


@settings(deadline=None, max_examples=30)
@given(st.text(max_size=60), st.text(max_size=60))
def test_any_texts_are_measured(question: str, answer: str) -> None:
    found = NearWords(embed).measure(question, entry(question or "q", answer), lambda word: 1.0)
    assert set(found) == set(BY_WORDS)
    assert all(np.isfinite(value) for value in found.values())
