"""Compare the entries found with the question: how surely each answers it, which sentence fits best, and whether its
"Yes" or "No" answers this question. Pure."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from shared.facts.proper import not_in
from shared.faq.decision.asked import NEEDED
from shared.faq.decision.features import WEIGHT_OF_UNKNOWN, QuestionTerms, Read, by_terms, by_vectors
from shared.faq.decision.near_words import BY_WORDS, NearWords
from shared.faq.decision.packaged import deciders
from shared.faq.entries import FaqEntry, FaqHit
from shared.faq.ranking import Ranking
from shared.faq.speech.polarity import bears_out
from shared.faq.terms import TermExtractor
from shared.faq.vectors import Embed, EntryVectors

# Below every threshold from which an entry answers.
_UNSURE: Final = 0.49
_JUDGED: Final = 2  # a reply quotes two entries at most, so the third one's sureness would not be read
_MOST_NAMES: Final = 16  # removed from a question; the time grows with their square
# Sums of weights are not exact.
_COVERED: Final = 0.99


class Readings:
    """The terms of one language's entries, each read at its first use. Not thread-safe, like the index."""

    def __init__(
        self, ranking: Ranking, terms_of: TermExtractor, vectors: EntryVectors | None, embed: Embed | None = None
    ) -> None:
        self._ranking = ranking
        self._terms_of = terms_of
        self._by_terms = deciders().terms
        # With an encoder that no decision was trained for, the terms decide.
        self._by_vectors = None if vectors is None else deciders().of_encoder(vectors.probe)
        self._vectors = vectors
        self._words = None if vectors is None or embed is None else NearWords(partial(_embedded, embed, ranking))
        self._places = {entry.id: place for place, entry in enumerate(ranking.entries)}
        self._read: dict[str, Read] = {}

    def asked(self, question: str, weights: Mapping[str, float] | None = None) -> QuestionTerms:
        """Return a question in plain characters, to be compared with entries. `weights`: those of its terms, if they
        are known."""
        mended = self._ranking.mended(self._terms_of.weights(question) if weights is None else weights)
        rarities = {term: rarity for term in mended if (rarity := self._ranking.rarity(term)) > 0}
        return QuestionTerms.of(question, mended, rarities, chinese=self._ranking.entries[0].language == "zh")

    def read(
        self, asked: QuestionTerms, hits: Sequence[FaqHit], vector: NDArray[np.float32] | None = None
    ) -> tuple[FaqHit, ...]:
        """Return the hits with `sureness` and `bears_opening` set, the one that asks the same before any other.

        Args:
            asked: The question; a follow-up together with the question before.
            hits: Best first.
            vector: The question's embedding, [dimensions], if one was computed.
        """
        terms = asked.values.keys()
        found = []
        for hit, sureness in zip(hits, self._sureness(asked, hits, vector), strict=True):
            read = self._of(hit.entry)
            own = zip(read.phrasings, read.wordings.terms, strict=True)
            bears = not read.opens or bears_out(asked.text, terms, own)
            found.append(msgspec.structs.replace(hit, sureness=sureness, bears_opening=bears))
        same = next((hit for hit in found if hit.sureness == 1.0), None)
        if same is not None and same is not found[0]:
            found.remove(same)
            found.insert(0, msgspec.structs.replace(same, score=found[0].score))
        return tuple(found)

    def borne(self, asked: QuestionTerms, name: str) -> int | None:
        """Return the place of the entry `name` if it may answer the question, which leans on one that it answered: it
        states each kind of fact asked for, and has some of the question's terms in its answer, or all of them."""
        place = self._places.get(name)
        if place is None:
            return None
        read = self._of(self._ranking.entries[place])
        if not asked.kinds <= read.stated:
            return None
        answered = asked.share(read.sentences.having) > 0
        covered = asked.share(read.wordings.having, read.sentences.having) >= _COVERED
        return place if (asked.kinds and answered) or covered else None

    def _sureness(
        self, asked: QuestionTerms, hits: Sequence[FaqHit], vector: NDArray[np.float32] | None
    ) -> list[float]:
        """Return how surely each hit's entry answers: surely if the question is one of its wordings, and below every
        threshold if it lacks a name of the question (Bitcoin, FSC), or states no fact of a kind that is asked for and
        `NEEDED` (who, which firm, how heavy)."""
        decider = self._by_vectors if vector is not None and self._by_vectors is not None else self._by_terms
        unanswered = [self._of(hit.entry).unanswered for hit in hits]
        unsaid = [bool(names) and not names.isdisjoint(asked.words) for names in unanswered]
        found = [float(not lacks and self._asks_the_same(asked, hit)) for hit, lacks in zip(hits, unsaid, strict=True)]
        ranks = [rank for rank, sureness in enumerate(found[:_JUDGED]) if not sureness]
        measured = [self._measure(asked, hits, rank, vector, decider.names) for rank in ranks]
        surenesses = decider.sureness(measured, self._ranking.entries[0].language)
        for rank, row, sureness in zip(ranks, measured, surenesses, strict=True):
            lacks_name = row["names_lacking"] > 0
            most = max(sureness, self._sureness_without_names(asked, hits, rank)) if lacks_name else sureness
            lacks_name = (
                lacks_name or unsaid[rank] or not NEEDED.isdisjoint(asked.kinds - self._of(hits[rank].entry).stated)
            )
            found[rank] = min(most, _UNSURE) if lacks_name else most
        return found

    def _asks_the_same(self, asked: QuestionTerms, hit: FaqHit) -> bool:
        """Return whether the question is one of the wordings of a hit's entry."""
        place = self._ranking.asked_as.get(asked.wording)
        own = place is not None and self._ranking.entries[place].id == hit.entry.id
        return own or asked.core in self._of(hit.entry).cores

    def _sureness_without_names(self, asked: QuestionTerms, hits: Sequence[FaqHit], rank: int) -> float:
        """Return how surely a hit's entry answers the question but for the names that it lacks: to "Do you ship to
        Japan?" the entry about shipping is quoted, which lists where to."""
        lacking = not_in(asked.names, self._of(hits[rank].entry).words)
        if len(lacking) > _MOST_NAMES:
            return 0.0
        rest = re.sub("|".join(map(re.escape, lacking)), " ", asked.text, flags=re.IGNORECASE)
        measured = self._measure(self.asked(rest), hits, rank, None, self._by_terms.names)
        return self._by_terms.sureness([measured], hits[rank].entry.language)[0]

    def measured(
        self, asked: QuestionTerms, hits: Sequence[FaqHit], vector: NDArray[np.float32] | None = None
    ) -> list[dict[str, float]]:
        """Return the measures of each hit by name, those of `BY_VECTORS` and `BY_WORDS` only if there are vectors."""
        return [self._measure(asked, hits, rank, vector, frozenset(BY_WORDS)) for rank in range(len(hits))]

    def _measure(
        self,
        asked: QuestionTerms,
        hits: Sequence[FaqHit],
        rank: int,
        vector: NDArray[np.float32] | None,
        wanted: frozenset[str],
    ) -> dict[str, float]:
        hit = hits[rank]
        others = max((other.score for other in hits if other is not hit), default=0.0)
        row = by_terms(asked, self._of(hit.entry), score=hit.score, lead=hit.score - others, rank=rank)
        if vector is not None and self._vectors is not None:
            row |= by_vectors(vector, *self._vectors.of_entry(self._places[hit.entry.id]))
        if vector is not None and self._words is not None and not wanted.isdisjoint(BY_WORDS):
            row |= self._words.measure(asked.text, hit.entry, self._value_of)
        return row

    def _value_of(self, word: str) -> float:
        """Return the weight of a word, by its rarity in the FAQ; an unknown word has part of the rarest one's."""
        rarity = max((self._ranking.rarity(term) for term in self._terms_of(word)), default=0.0)
        return rarity or WEIGHT_OF_UNKNOWN * self._ranking.rarest

    def _of(self, entry: FaqEntry) -> Read:
        read = self._read.get(entry.id)
        if read is None:
            place = self._places[entry.id]
            phrasings, terms = self._ranking.phrasings[place], self._ranking.terms[place]
            read = self._read[entry.id] = Read.of(entry, phrasings, terms, self._terms_of)
        return read


def _embedded(embed: Embed, ranking: Ranking, words: Sequence[str]) -> NDArray[np.float32]:
    vectors = embed(words, ranking.entries[0].language)
    assert vectors is not None, "the language has embeddings"
    return vectors
