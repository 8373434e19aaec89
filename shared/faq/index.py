"""The FAQ's index: the entries that answer a question best, by BM25 over how customers ask.

An entry is indexed by its question and its alternatives. Its answer adds only the terms that nobody asks by (a card's
brand, a spare part's SKU): they find the entry, and they leave the ranking of what is asked alone.

BM25 as in S. Robertson and H. Zaragoza, "The Probabilistic Relevance Framework" (2009), in Lucene's variant, by bm25s.
"""

import logging
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from shared.faq.entries import LANGUAGES, PACKAGED_PATH, FaqEntry, FaqHit, Language, read_entries
from shared.faq.spelling import Spelling
from shared.faq.terms import TermExtractor, detect_language, wording

# What one term that the index does not know adds to the best attainable score, as a share of the index's rarest term.
# A pair of Chinese characters weighs less: any new wording makes new pairs of known characters.
_UNKNOWN_WEIGHT: Final = 1.0
_UNKNOWN_PAIR_WEIGHT: Final = 0.5
# One word in common is weak evidence however short the question: this much is added to every best attainable score.
_PRIOR_WEIGHT: Final = 0.5


@dataclass(frozen=True, slots=True)
class _Ranking:
    """One language's entries. `best[term]` is the highest score that the term gives to any entry.

    `asked_as` finds the entry that asks in just these words: neighbours in meaning share most of their terms ("How do
    I return an item?", "Can I return items from the sale?"), and a question clicked in a list must find its own answer.
    """

    entries: tuple[FaqEntry, ...]
    bm25: Any
    best: dict[str, float]
    rarest: float
    spelling: Spelling
    asked_as: dict[str, int]

    def attainable(self, terms: Sequence[str], known: Sequence[str | None]) -> float:
        """The score of an imagined entry that has every term of the question at its best.

        A mended term and an unknown one count as rare terms. An SKU that the index does not know counts by its
        parts alone.
        """
        total = _PRIOR_WEIGHT * self.rarest
        for term, match in zip(terms, known, strict=True):
            if match == term:
                total += self.best[term]
            elif "-" not in term:
                is_pair = len(term) > 1 and not term.isascii()
                total += self.rarest * (_UNKNOWN_PAIR_WEIGHT if is_pair else _UNKNOWN_WEIGHT)
        return total

    def recognise(self, term: str) -> str | None:
        """The index's own term for a term of the question: itself, the word it is a slip of, or None."""
        return term if term in self.best else self.spelling.nearest(term)


class FaqIndex:
    """Searches the FAQ. Not to be shared between threads (its stemmer is not)."""

    def __init__(self, entries: Sequence[FaqEntry]) -> None:
        self._terms_of = TermExtractor()
        self.entries = tuple(entries)
        self._rankings: dict[Language, _Ranking] = {}
        for language in LANGUAGES:
            ranking = self._rank([entry for entry in entries if entry.language == language])
            if ranking is not None:
                self._rankings[language] = ranking

    @classmethod
    def load(cls, path: Path | None = None) -> Self:
        """Index the FAQ file at `path`, or the packaged one. Raises SettingsError if the file is bad."""
        return cls(read_entries(PACKAGED_PATH if path is None else path))

    def search(self, text: str, *, k: int = 3, language: Language | None = None) -> list[FaqHit]:
        """The at most `k` entries that match best, best first, in `language` (by default the text's own).

        A hit's score is the share, in 0..1, of what an entry that has every term of the question would score; so
        scores of long and short questions compare. Without a term in common there is no hit.
        """
        ranking = self._rankings.get(language or detect_language(text))
        if ranking is None:
            return []
        terms = list(dict.fromkeys(self._terms_of(text)))
        known = [ranking.recognise(term) for term in terms]
        matched = list(dict.fromkeys(term for term in known if term is not None))
        if not matched:
            return []
        shares = ranking.bm25.get_scores(matched) / ranking.attainable(terms, known)
        same = ranking.asked_as.get(wording(text))
        if same is not None:
            # Above 1 for the sort alone, so that it precedes an entry that happens to reach 1.
            shares[same] = 2.0
        best_first = (-shares).argsort(kind="stable")[: max(k, 0)].tolist()
        return [FaqHit(ranking.entries[at], min(float(shares[at]), 1.0)) for at in best_first if shares[at] > 0]

    def _rank(self, entries: Sequence[FaqEntry]) -> _Ranking | None:
        asked = [
            [term for phrasing in (entry.question, *entry.alternatives) for term in self._terms_of(phrasing)]
            for entry in entries
        ]
        asked_by_any = {term for terms in asked for term in terms}
        answered = [set(self._terms_of(entry.answer)) - asked_by_any for entry in entries]
        documents = [[*terms, *sorted(extra)] for terms, extra in zip(asked, answered, strict=True)]
        frequencies = Counter(term for document in documents for term in set(document))
        if not frequencies:
            return None
        bm25 = _new_bm25()
        bm25.index(documents, create_empty_token=False, show_progress=False)
        best = {term: float(bm25.get_scores([term]).max()) for term in frequencies}
        asked_as: dict[str, int] = {}
        for at, entry in enumerate(entries):
            for phrasing in (entry.question, *entry.alternatives):
                asked_as.setdefault(wording(phrasing), at)
        return _Ranking(tuple(entries), bm25, best, max(best.values()), Spelling(frequencies), asked_as)


def _new_bm25() -> Any:
    with _without_progress_bars():
        import bm25s  # here, so that the FAQ's values and language detection cost no numerics
    # It logs at DEBUG whatever the application's level is.
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    return bm25s.BM25(method="lucene", backend="numpy", csc_backend="numpy")


@contextmanager
def _without_progress_bars() -> Iterator[None]:
    """bm25s reads this variable as it is imported; else tqdm starts a monitor thread even for bars that are off."""
    name = "DISABLE_TQDM"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
