"""The entries as embeddings: how near a question is to each, whatever its words.

Cosines of one model say nothing beside those of another, nor beside shares of terms. So a similarity is scaled by the
FAQ itself: 0 is how near the entries of different questions typically come to each other, 1 is the very same text.
Below 0 it still tells the nearer entry from the farther one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from shared.faq.entries import FaqEntry
from shared.faq.words.fold import plain_entry
from shared.wire.messages import Language

# Texts of a language to unit vectors: [texts, dimensions]; None where there are none for the language.
Embed = Callable[[Sequence[str], Language], NDArray[np.float32] | None]

# So many phrasings, spread over all, are enough to tell how near strangers come.
_SAMPLED: Final = 256


@dataclass(frozen=True, slots=True)
class EntryVectors:
    """One language's. `vectors` [phrasings, dimensions] are unit vectors of each question and alternative; entry i's
    begin at `begins[i]`. `floor` is the cosine that counts as 0."""

    vectors: NDArray[np.float32]
    begins: NDArray[np.int64]
    floor: float

    @classmethod
    def of(cls, entries: Sequence[FaqEntry], embed: Embed) -> Self | None:
        """`entries` are of one language, and there is one. None where that has no embeddings."""
        phrasings = [tuple(map(plain_entry, entry.wordings)) for entry in entries]
        vectors = embed([phrasing for of_entry in phrasings for phrasing in of_entry], entries[0].language)
        if vectors is None:
            return None
        begins = np.cumsum([0, *(len(of_entry) for of_entry in phrasings)])[:-1]
        owners = np.repeat(np.arange(len(entries)), [len(of_entry) for of_entry in phrasings])
        return cls(vectors, begins, _nearest_strangers(vectors, owners))

    def similarities(self, vector: NDArray[np.float32]) -> NDArray[np.float64]:
        """[entries], at most 1: of each the nearest phrasing's, scaled. As wide as the shares that they are added to:
        a part of the least `float32` would be none."""
        nearest = np.maximum.reduceat(self.vectors @ vector, self.begins).astype(np.float64)
        return np.minimum((nearest - self.floor) / (1.0 - self.floor), 1.0)


def _nearest_strangers(vectors: NDArray[np.float32], owners: NDArray[np.int64]) -> float:
    """Return the median, over phrasings, of the cosine to the nearest phrasing of another entry; below 1."""
    sample = np.unique(np.linspace(0, len(vectors) - 1, min(_SAMPLED, len(vectors))).astype(np.int64))
    cosines = vectors[sample] @ vectors.T
    cosines[owners[sample][:, None] == owners[None, :]] = -1.0
    return float(np.clip(np.median(cosines.max(axis=1)), 0.0, 0.99))
