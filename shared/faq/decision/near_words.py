"""Measure how near each word of a question is to the words of an FAQ entry, by the cosines of single words' embeddings.

"Furniture" and "sofa" have no term in common. A loose paraphrase has a near word for each of its words; a near miss has
a word that is far from all of them: the price, the colour or the certificate that the entry lacks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from shared.faq.decision.features import sentences_of
from shared.faq.entries import FaqEntry
from shared.faq.terms import words_in
from shared.faq.words.fold import plain_entry

BY_WORDS: Final = (
    "word_near", "word_asked", "word_sentence", "word_sentence_own", "word_lacking", "word_second", "word_least",
    "word_wording",
)  # fmt: skip
_Columns = NDArray[np.int64]
_Vectors = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _EntryWords:
    """The distinct words of an entry, and the numbers of those of its question, wordings, each wording and each
    sentence."""

    words: tuple[str, ...]
    own: _Columns
    asked: _Columns
    wordings: tuple[_Columns, ...]
    sentences: tuple[_Columns, ...]

    @classmethod
    def of(cls, entry: FaqEntry) -> Self:
        numbers: dict[str, int] = {}

        def columns(text: str) -> _Columns:
            return np.array([numbers.setdefault(word, len(numbers)) for word in words_in(text)], dtype=np.int64)

        wordings = tuple(columns(plain_entry(wording)) for wording in entry.wordings)
        some = tuple(each for each in wordings if len(each))
        asked = np.unique(np.concatenate(wordings))
        sentences = tuple(columns(plain_entry(part)) for part in sentences_of(entry))
        return cls(tuple(numbers), wordings[0], asked, some, sentences)


class NearWords:
    """The embeddings of one language's words, each computed at its first use. Not thread-safe."""

    def __init__(self, embed: Callable[[Sequence[str]], _Vectors]) -> None:
        self._embed = embed
        self._vectors: dict[str, _Vectors] = {}
        self._entries: dict[str, _EntryWords] = {}

    def measure(self, question: str, entry: FaqEntry, value_of: Callable[[str], float]) -> dict[str, float]:
        """Return the measures of `BY_WORDS`; all 0 if either has no word.

        Args:
            question: In plain characters.
            entry: The entry.
            value_of: Returns the weight of a word, by its rarity in the FAQ.
        """
        words = words_in(question)
        of_entry = self._entries.get(entry.id)
        if of_entry is None:
            of_entry = self._entries[entry.id] = _EntryWords.of(entry)
            self._vectors.update(self._embedded(of_entry.words))
        if not words or not of_entry.words:
            return dict.fromkeys(BY_WORDS, 0.0)
        # A question's words are not kept: customers' words are without end.
        asked = self._embedded(words) | {word: self._vectors[word] for word in words if word in self._vectors}
        values = np.array([value_of(word) for word in words])
        known = np.stack([self._vectors[word] for word in of_entry.words])
        cosines = np.stack([asked[word] for word in words]) @ known.T
        return dict(zip(BY_WORDS, _measures(cosines, values / values.sum(), of_entry), strict=True))

    def _embedded(self, words: Sequence[str]) -> dict[str, _Vectors]:
        new = [word for word in words if word not in self._vectors]
        return dict(zip(new, self._embed(new), strict=True)) if new else {}


def _measures(cosines: NDArray[np.float32], weights: NDArray[np.float64], entry: _EntryWords) -> tuple[float, ...]:
    """Return the measures, of cosines [the question's words, the entry's words] and the weights of the former."""

    def nearest(columns: _Columns) -> NDArray[np.float32]:
        return cosines[:, columns].max(axis=1) if len(columns) else np.zeros(len(cosines), dtype=np.float32)

    near, own = cosines.max(axis=1), nearest(entry.own)
    parts = [nearest(part) for part in entry.sentences]
    lacking = np.sort(weights * (1.0 - near))[::-1]
    return (
        float(weights @ near),
        float(weights @ nearest(entry.asked)),
        max(float(weights @ part) for part in parts),
        max(float(weights @ np.maximum(part, own)) for part in parts),
        float(lacking[0]),
        float(lacking[1]) if len(lacking) > 1 else 0.0,
        float(near.min()),
        _best_wording(cosines, weights, entry.wordings),
    )


def _best_wording(cosines: NDArray[np.float32], weights: NDArray[np.float64], wordings: Sequence[_Columns]) -> float:
    """Return the best wording's F1 of how near the question's words are to its words, and its words to the question's
    (T. Zhang et al., "BERTScore", 2020)."""
    if not wordings:
        return 0.0
    begins = np.cumsum([0, *(len(columns) for columns in wordings[:-1])])
    some = cosines[:, np.concatenate(wordings)]
    there = weights @ np.maximum.reduceat(some, begins, axis=1)
    back = np.add.reduceat(some.max(axis=0), begins) / [len(columns) for columns in wordings]
    return float((2 * there * back / np.maximum(there + back, 1e-9)).max())
