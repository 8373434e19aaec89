"""Compute how similar a question's meaning is to that of each FAQ entry, by the cosine of their embeddings.

Cosines of different embedding models are not comparable, so each is scaled by the FAQ itself: 0 is the median
similarity of two different entries, 1 that of identical texts. Negative values occur, and are still used to order the
entries.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from shared.faq.decision.features import sentences_of
from shared.faq.decision.packaged import PROBE
from shared.faq.entries import FaqEntry
from shared.faq.words.fold import plain_entry
from shared.wire.messages import Language

# Texts of a language to unit vectors: [texts, dimensions]; None where there are none for the language.
Embed = Callable[[Sequence[str], Language], NDArray[np.float32] | None]

# This many phrasings, spread evenly over all, are enough to estimate the similarity between different entries.
_SAMPLED: Final = 256
# An entry with more wordings is found by these: its answer's words bring in neighbours. Measured on the dev questions.
_FEW_WORDINGS: Final = 3


@dataclass(frozen=True, slots=True)
class EntryVectors:
    """The embeddings of one language's entries, as unit vectors.

    Attributes:
        vectors: [phrasings, dimensions], of each question and alternative; those of entry i begin at `begins[i]`.
        answers: [entries, dimensions], of each question with its answer as one text.
        sentences: [sentences, dimensions], of each answer's sentences; those of entry i begin at `sentence_begins[i]`.
        floor: the cosine that is scaled to 0.
        probe: [dimensions], of the text by which the encoder is recognised.
    """

    vectors: NDArray[np.float32]
    begins: NDArray[np.int64]
    answers: NDArray[np.float32]
    sentences: NDArray[np.float32]
    sentence_begins: NDArray[np.int64]
    floor: float
    probe: NDArray[np.float32]

    @classmethod
    def of(cls, entries: Sequence[FaqEntry], embed: Embed) -> Self | None:
        """Return the embeddings of `entries`, which are of one language and not empty; None if `embed` has none for the
        language."""
        phrasings = [tuple(map(plain_entry, entry.wordings)) for entry in entries]
        vectors = embed([phrasing for of_entry in phrasings for phrasing in of_entry], entries[0].language)
        if vectors is None:
            return None
        begins = np.cumsum([0, *(len(of_entry) for of_entry in phrasings)])
        owners = np.repeat(np.arange(len(entries)), [len(of_entry) for of_entry in phrasings])
        parts = [[plain_entry(part) for part in sentences_of(entry)] for entry in entries]
        sentence_begins = np.cumsum([0, *(len(of_entry) for of_entry in parts)])
        whole = [plain_entry(f"{entry.question} {entry.answer}") for entry in entries]
        answers = embed(whole, entries[0].language)
        sentences = embed([part for of_entry in parts for part in of_entry], entries[0].language)
        probe = embed([PROBE], entries[0].language)
        assert answers is not None, "the language has embeddings"
        assert sentences is not None, "the language has embeddings"
        assert probe is not None, "the language has embeddings"
        floor = _median_of_strangers(vectors, owners)
        return cls(vectors, begins, answers, sentences, sentence_begins, floor, probe[0])

    def of_entry(self, place: int) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """Return one entry's vectors: of its wordings, of its question and answer, and of its answer's sentences."""
        wordings = self.vectors[self.begins[place] : self.begins[place + 1]]
        parts = self.sentences[self.sentence_begins[place] : self.sentence_begins[place + 1]]
        return wordings, self.answers[place], parts

    def similarities(self, vector: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return each entry's similarity [entries], at most 1: that of its nearest phrasing, scaled. Question and
        answer as one text are a further phrasing of an entry that has few. The values are float64, like the shares that
        they are added to; the smallest part would be rounded to 0 in float32."""
        nearest = np.maximum.reduceat(self.vectors @ vector, self.begins[:-1]).astype(np.float64)
        answers = (self.answers @ vector).astype(np.float64)
        nearest = np.where(np.diff(self.begins) <= _FEW_WORDINGS, np.maximum(nearest, answers), nearest)
        return np.minimum((nearest - self.floor) / (1.0 - self.floor), 1.0)


def _median_of_strangers(vectors: NDArray[np.float32], owners: NDArray[np.int64]) -> float:
    """Return the median cosine of phrasings of different entries, in 0..0.99; 0 for a single entry.

    The nearest phrasing of another entry would be too high a floor: entries of one shop are close to each other, and a
    loose paraphrase of the right entry is often farther (measured on the dev shops: recall@3 0.88 instead of 0.94).
    """
    sample = np.unique(np.linspace(0, len(vectors) - 1, min(_SAMPLED, len(vectors))).astype(np.int64))
    strangers = owners[sample][:, None] != owners[None, :]
    if not strangers.any():
        return 0.0
    return float(np.clip(np.median((vectors[sample] @ vectors.T)[strangers]), 0.0, 0.99))
