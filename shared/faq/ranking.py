"""Rank one language's entries by the terms of a question.

An entry is a document of two fields: its question and alternatives, and its answer, whose terms count less. Each field
is scored by BM25 as in S. Robertson and H. Zaragoza, "The Probabilistic Relevance Framework" (2009), in Lucene's
variant. bm25s computes the score of each term for each entry when it builds the index. A search adds up the columns of
the question's terms, so its cost is the length of those columns.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from shared.faq.entries import FaqEntry, FaqHit
from shared.faq.follow_up import content_words
from shared.faq.terms import NAME_WEIGHT, NAMED_WORD_WEIGHT, TermExtractor, wording
from shared.faq.words.fold import Plain, plain_entry

# Shorter words have too many neighbours: "sing" is not a slip of "sign".
MIN_LETTERS: Final = 5


class Spelling:
    """Finds the word that a misspelt one was meant to be, out of those that the index knows, each with the number of
    entries that use it.

    Two words one edit apart (a letter added, dropped, replaced, or swapped with its neighbour) become equal when at
    most one letter is left out of each, so a table of the known words' shortened forms finds the candidates without a
    scan: the symmetric delete idea (W. Garbe, SymSpell)."""

    def __init__(self, frequencies: Mapping[str, int]) -> None:
        self._frequencies = frequencies
        self._by_shortened: dict[str, list[str]] = {}
        for word in frequencies:
            # A known word may be one letter shorter than the shortest slip that is mended.
            if _is_plain(word) and len(word) >= MIN_LETTERS - 1:
                for shortened in _shortened(word):
                    self._by_shortened.setdefault(shortened, []).append(word)

    def nearest(self, word: str) -> str | None:
        """Return the most frequent known word one edit away that starts with the same letter; None without
        one."""
        if len(word) < MIN_LETTERS or not _is_plain(word):
            return None
        candidates = {
            known
            for shortened in _shortened(word)
            for known in self._by_shortened.get(shortened, ())
            if known[0] == word[0] and _is_one_edit(word, known)
        }
        return min(candidates, key=lambda known: (-self._frequencies[known], known), default=None)


def _is_plain(word: str) -> bool:
    return word.isascii() and word.isalpha()


def _shortened(word: str) -> set[str]:
    return {word, *(word[:at] + word[at + 1 :] for at in range(len(word)))}


def _is_one_edit(typed: str, known: str) -> bool:
    at = 0
    while at < min(len(typed), len(known)) and typed[at] == known[at]:
        at += 1
    left, right = typed[at:], known[at:]
    swapped = left[:2] == right[:2][::-1] and left[2:] == right[2:]
    return left[1:] == right[1:] or left[1:] == right or left == right[1:] or swapped


# The weight of a term in the answer; a term in a question has 1.
ANSWER_WEIGHT: Final = 0.6
# A term that the index does not have adds this share of the rarest term's score to the best attainable score.
_UNKNOWN_WEIGHT: Final = 0.5
# One word in common is weak evidence however short the question: this much is added to every best attainable score.
_PRIOR_WEIGHT: Final = 0.5
# From this number of words on, an entry that asks in exactly these words is taken to be the right one.
_SEVERAL_WORDS: Final = 2


@dataclass(frozen=True, slots=True)
class Ranking:
    """The index of one language's entries.

    The term with the number `ids[term]` = n gives `scores[bounds[n]:bounds[n + 1]]` to the entries
    `rows[bounds[n]:bounds[n + 1]]`. `best[n]` is the highest of these scores, and `rarest` is the score of the rarest
    term.

    `asked_as` finds the entry whose question has exactly these words. Similar questions share most of their terms ("How
    do I return an item?", "Can I return items from the sale?"), and a question clicked in a list must find its own
    answer. `asked_in` finds the only entry with a question of exactly these terms, if there are at least two. BM25 adds
    up all questions of an entry, so an entry with many of them would lose to a similar entry that has few. `unasked`
    are the ids of entries whose questions have no term. `phrasings` are the wordings of each entry in plain characters,
    its own question first, and `terms` the terms of each wording.
    """

    entries: tuple[FaqEntry, ...]
    ids: Mapping[str, int]
    bounds: NDArray[np.int64]
    rows: NDArray[np.int32]
    scores: NDArray[np.float32]
    best: NDArray[np.float32]
    rarest: float
    spelling: Spelling
    asked_as: Mapping[str, int]
    asked_in: Mapping[frozenset[str], int]
    unasked: Sequence[str]
    names_of: Callable[[str], Sequence[str]]
    phrasings: Sequence[tuple[Plain, ...]]
    terms: Sequence[tuple[frozenset[str], ...]]

    @classmethod
    def of(cls, entries: Sequence[FaqEntry], terms_of: TermExtractor) -> Self | None:
        """Return the ranking; None where no entry has any term."""
        ids: dict[str, int] = {}
        asked, answered = list[list[int]](), list[list[int]]()
        asked_as: dict[str, int] = {}
        asking_in: dict[frozenset[str], set[int]] = {}
        phrasings, terms_of_each = list[tuple[Plain, ...]](), list[tuple[frozenset[str], ...]]()
        for at, entry in enumerate(entries):
            phrasings.append(tuple(map(plain_entry, entry.wordings)))
            of_phrasings = list(map(terms_of, phrasings[at]))
            terms_of_each.append(tuple(map(frozenset, of_phrasings)))
            asked.append([ids.setdefault(term, len(ids)) for terms in of_phrasings for term in terms])
            answered.append([ids.setdefault(term, len(ids)) for term in terms_of(plain_entry(entry.answer))])
            for phrasing in phrasings[at]:
                asked_as.setdefault(wording(phrasing), at)
            for terms in terms_of_each[at]:
                if content_words(terms) >= _SEVERAL_WORDS:
                    asking_in.setdefault(terms, set()).add(at)
        if not ids:
            return None
        where, scores = _cells(ids, ((asked, 1.0), (answered, ANSWER_WEIGHT)), len(entries))
        bounds = np.searchsorted(where, np.arange(len(ids) + 1) * len(entries))
        best = np.maximum.reduceat(scores, bounds[:-1])
        frequencies = dict(zip(ids, np.diff(bounds).tolist(), strict=True))
        rows = (where % len(entries)).astype(np.int32)
        return cls(
            tuple(entries),
            ids,
            bounds,
            rows,
            scores,
            best,
            float(best.max()),
            Spelling(frequencies),
            asked_as,
            {terms: min(of_terms) for terms, of_terms in asking_in.items() if len(of_terms) == 1},
            [entry.id for entry, terms in zip(entries, asked, strict=True) if not terms],
            terms_of.names_of,
            phrasings,
            terms_of_each,
        )

    def shares(self, weights: Mapping[str, float]) -> NDArray[np.float64]:
        """Return, `[number of entries]`, each entry's score, in 0..1, as a share of what an imagined entry would score
        that has every term of the question at its best. The entry that asks in just these terms has them all."""
        matched, unknown = self._matched(weights)
        if not matched:
            return np.zeros(len(self.entries))
        numbers = [self.ids[term] for term in matched]
        columns = [slice(self.bounds[number], self.bounds[number + 1]) for number in numbers]
        rows = np.concatenate([self.rows[column] for column in columns])
        scores = np.concatenate(
            [self.scores[column] * weight for column, weight in zip(columns, matched.values(), strict=True)]
        )
        attainable = _PRIOR_WEIGHT * self.rarest + unknown * _UNKNOWN_WEIGHT * self.rarest
        attainable += sum(float(self.best[self.ids[term]]) * weight for term, weight in matched.items())
        shares = np.bincount(rows, scores, minlength=len(self.entries)) / attainable
        if not unknown and (at := self.asked_in.get(frozenset(matched))) is not None:
            shares[at] = 1.0
        return shares

    def mended(self, weights: Mapping[str, float]) -> dict[str, float]:
        """Return a question's terms, each slip of a word as the word that was meant."""
        return {
            term if term in self.ids else self.spelling.nearest(term) or term: weight
            for term, weight in weights.items()
        }

    def rarity(self, term: str) -> float:
        """Return what a term gives to the entry that it gives most: more for a rarer one, 0 for an unknown one."""
        number = self.ids.get(term)
        return 0.0 if number is None else float(self.best[number])

    def best_of(self, scores: NDArray[np.floating[Any]], k: int) -> tuple[FaqHit, ...]:
        """Return, of one score an entry, the `k` highest above 0, best first; the first of equals first."""
        least = np.partition(scores, -k)[-k] if k < len(scores) else 0.0
        at = np.flatnonzero((scores >= least) & (scores > 0))
        places = at[np.argsort(-scores[at], kind="stable")][:k]
        return tuple(FaqHit(self.entries[place], min(float(scores[place]), 1.0)) for place in places.tolist())

    def _matched(self, weights: Mapping[str, float]) -> tuple[dict[str, float], float]:
        """Return the index's own terms that a question's are, with what each counts; and what those that it lacks count
        together. A word that is mended brings its other names. An SKU that is lacking counts by its parts alone,
        another name of a word not at all."""
        matched: dict[str, float] = {}
        unknown = 0.0
        for term, weight in weights.items():
            if term in self.ids:
                matched[term] = max(weight, matched.get(term, 0.0))
            elif (word := self.spelling.nearest(term)) is not None:
                names = self.names_of(word)
                meant = min(weight, NAMED_WORD_WEIGHT) if names else weight
                matched[word] = max(meant, matched.get(word, 0.0))
                for name in names:
                    if name in self.ids:
                        matched[name] = max(NAME_WEIGHT, matched.get(name, 0.0))
            elif "-" not in term and not term.startswith("="):
                unknown += weight
        return matched, unknown


def _cells(
    ids: Mapping[str, int], fields: Sequence[tuple[Sequence[Sequence[int]], float]], num_entries: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Term number x entries + entry, ascending, of each term in each entry, and what it gives there over all fields."""
    cells, scores = [], []
    for documents, weight in fields:
        if any(documents):
            bm25 = _new_bm25()
            bm25.index((documents, dict(ids)), create_empty_token=False, show_progress=False)
            columns = bm25.scores
            numbers = np.repeat(np.arange(len(ids), dtype=np.int64), np.diff(columns["indptr"]))
            cells.append(numbers * num_entries + columns["indices"])
            scores.append(columns["data"] * weight)
    where, places = np.unique(np.concatenate(cells), return_inverse=True)
    return where, np.bincount(places, np.concatenate(scores)).astype(np.float32)


def _new_bm25() -> Any:
    with _without_progress_bars():
        import bm25s  # here, so that the FAQ's values and language detection cost no numerics
    # bm25s logs at DEBUG even if the application's level is higher.
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
