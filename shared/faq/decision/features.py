"""Compute the numbers from which the trained classifier decides whether an FAQ entry answers a question. Pure.

Each number compares the two: terms that both contain, or terms of the question that the entry lacks. None describes the
question alone. The training questions that an entry does not quite answer were written by a few people, whose style
differs from customers'; a classifier that saw the question alone would learn to recognise those authors.
"""

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from shared.facts.proper import not_in, proper_names, unknown_names, words_of
from shared.faq.decision.asked import asks_for, states
from shared.faq.decision.same import Core, core_of, cores_of
from shared.faq.entries import FaqEntry
from shared.faq.speech.polarity import opening_of
from shared.faq.speech.sentences import sentences
from shared.faq.terms import TermExtractor, wording
from shared.faq.words.fold import Plain, plain_entry

BY_TERMS: Final = (
    "score", "lead", "rank", "asked", "answered", "covered", "nearest", "alike", "own", "sentence", "sentence_own",
    "only_answer", "only_sentence", "lacking", "heaviest", "second", "num_lacking", "unknown", "kind_lacking",
    "kind_in_sentence", "names_lacking", "wordings", "sentences", "chinese",
)  # fmt: skip
BY_VECTORS: Final = (
    "near_wording", "near_own", "near_three", "near_sentence", "near_answer", "sentence_gain",
)  # fmt: skip
WEIGHT_OF_UNKNOWN: Final = 0.5
_BEST: Final = 3


@dataclass(frozen=True, slots=True)
class Texts:
    """The terms of several texts.

    Attributes:
        terms: The terms of each text.
        having: The places of the texts that have a term, ascending.
    """

    terms: tuple[frozenset[str], ...]
    having: Mapping[str, Sequence[int]]

    @classmethod
    def of(cls, terms: tuple[frozenset[str], ...]) -> Self:
        """Return the texts of these terms."""
        having: dict[str, list[int]] = {}
        for place, own in enumerate(terms):
            for term in own:
                having.setdefault(term, []).append(place)
        return cls(terms, having)


@dataclass(frozen=True, slots=True)
class Read:
    """The terms of an entry.

    Attributes:
        phrasings: Its wordings in plain characters, its own question first.
        wordings: The terms of each.
        sentences: The terms of each sentence of its answer.
        states: The kinds of fact that each sentence states.
        stated: The kinds that any of them states.
        words: All its words; a name in a question is checked against them.
        opens: Whether its answer opens with "Yes" or "No".
        unanswered: If the answer lists names, those that only its wordings for the search have: "any outlet in Berlin",
            and the answer lists four other cities.
        cores: The words that ask for something of each wording (`core_of`).
    """

    phrasings: tuple[Plain, ...]
    wordings: Texts
    sentences: Texts
    states: tuple[frozenset[str], ...]
    stated: frozenset[str]
    words: frozenset[str]
    opens: bool
    unanswered: frozenset[str]
    cores: frozenset[Core]

    @classmethod
    def of(
        cls,
        entry: FaqEntry,
        phrasings: tuple[Plain, ...],
        terms: tuple[frozenset[str], ...],
        terms_of: TermExtractor,
    ) -> Self:
        """Read an entry, given its wordings in plain characters and the terms of each."""
        parts = sentences_of(entry)
        states_of_parts = tuple(map(states, parts))
        said = words_of((entry.question, *entry.alternatives, entry.answer))
        searched = entry.also if proper_names(entry.answer) else ()
        return cls(
            phrasings,
            Texts.of(terms),
            Texts.of(tuple(frozenset(terms_of(plain_entry(part))) for part in parts)),
            states_of_parts,
            frozenset[str]().union(*states_of_parts),
            words_of((*entry.wordings, entry.answer)),
            opening_of(entry.answer) is not None,
            frozenset(name for also in searched for name in unknown_names(also, said)),
            frozenset[Core]().union(*map(cores_of, phrasings)),
        )


def sentences_of(entry: FaqEntry) -> list[str]:
    """Return the sentences of an entry's answer, one at least."""
    return [part.strip() for part in sentences(entry.answer) if part.strip()] or [entry.answer]


@dataclass(frozen=True)
class QuestionTerms:
    """The terms of a question, computed once and compared with several entries.

    Attributes:
        values: The weight of each term, by its rarity in the FAQ; an unknown term has half of the rarest one's.
        unknown: Its terms that the FAQ does not have.
        kinds: The kinds of fact that it asks for.
        text: The question itself.
        chinese: Whether it is in Chinese.
    """

    values: Mapping[str, float]
    unknown: frozenset[str]
    kinds: frozenset[str]
    text: str
    chinese: bool

    @classmethod
    def of(cls, text: str, weights: Mapping[str, float], rarities: Mapping[str, float], *, chinese: bool) -> Self:
        """Return a question of these terms. `rarities` has the terms that the FAQ knows."""
        own = {term: weight for term, weight in weights.items() if not (term.startswith("=") and term not in rarities)}
        rarest = max(rarities.values(), default=1.0) or 1.0
        values = {term: weight * rarities.get(term, rarest * WEIGHT_OF_UNKNOWN) for term, weight in own.items()}
        return cls(values, frozenset(own) - rarities.keys(), asks_for(text), text, chinese)

    @cached_property
    def total(self) -> float:
        """The weight of all its terms."""
        return sum(self.values.values())

    @cached_property
    def names(self) -> Sequence[str]:
        """The proper names in it."""
        return proper_names(self.text)

    @cached_property
    def words(self) -> frozenset[str]:
        """Its words, as names are checked against them."""
        return words_of([self.text])

    @cached_property
    def core(self) -> Core:
        """Its words that ask for something."""
        return core_of(self.text)

    @cached_property
    def wording(self) -> str:
        """Its letters and digits."""
        return wording(self.text)

    def share(self, terms: Container[str], also: Container[str] = ()) -> float:
        """Return the share, 0..1, of the question's weight that the terms in either set have."""
        found = 0.0
        for term, value in self.values.items():
            if term in terms or term in also:
                found += value
        return found / self.total if self.total else 0.0


@dataclass(frozen=True, slots=True)
class _Overlap:
    """The terms that a question and an entry have in common. All but `common` are sums of the question's weights.

    Attributes:
        wordings: Of each wording.
        common: Of each wording the number of terms.
        sentences: Of each sentence of the answer.
        with_own: Of each sentence together with the entry's own question.
        asked: Of all wordings.
        answered: Of the whole answer.
        covered: Of both.
        lacking: The weights of the terms that it lacks, the largest first.
    """

    wordings: list[float]
    common: list[int]
    sentences: list[float]
    with_own: list[float]
    asked: float
    answered: float
    covered: float
    lacking: list[float]

    @classmethod
    def of(cls, asked: QuestionTerms, read: Read) -> Self:
        """Compare a question with an entry."""
        num_wordings, every_sentence = len(read.wordings.terms), range(len(read.sentences.terms))
        wordings, common = [0.0] * num_wordings, [0] * num_wordings
        sentences, with_own = [0.0] * len(every_sentence), [0.0] * len(every_sentence)
        of_wordings = of_answer = of_both = 0.0
        lacking = []
        for term, value in asked.values.items():
            asking, stating = read.wordings.having.get(term, ()), read.sentences.having.get(term, ())
            for place in asking:
                wordings[place] += value
                common[place] += 1
            for place in stating:
                sentences[place] += value
            for place in every_sentence if asking and asking[0] == 0 else stating:
                with_own[place] += value
            of_wordings += value if asking else 0.0
            of_answer += value if stating else 0.0
            of_both += value if asking or stating else 0.0
            if not asking and not stating:
                lacking.append(value)
        lacking.sort(reverse=True)
        return cls(wordings, common, sentences, with_own, of_wordings, of_answer, of_both, lacking)

    def alike(self, asked: QuestionTerms, read: Read) -> float:
        """Return the highest Jaccard index, 0..1, of the question's terms and a wording's."""
        num, terms = len(asked.values), read.wordings.terms
        found = [both / (num + len(terms[place]) - both) for place, both in enumerate(self.common) if both]
        return max(found, default=0.0)


def by_terms(asked: QuestionTerms, read: Read, *, score: float, lead: float, rank: int) -> dict[str, float]:
    """Return the measures of `BY_TERMS`.

    Args:
        asked: The question.
        read: The entry.
        score: The entry's score, 0..1.
        lead: Its score minus the best other entry's.
        rank: Its place in the search, from 0.
    """
    found, total = _Overlap.of(asked, read), asked.total or 1.0
    best = found.sentences.index(max(found.sentences))
    asked_share, covered = found.asked / total, found.covered / total
    return {
        "score": score,
        "lead": lead,
        "rank": float(rank),
        "asked": asked_share,
        "answered": found.answered / total,
        "covered": covered,
        "nearest": max(found.wordings) / total,
        "alike": found.alike(asked, read),
        "own": found.wordings[0] / total,
        "sentence": found.sentences[best] / total,
        "sentence_own": max(found.with_own) / total,
        "only_answer": covered - asked_share,
        "only_sentence": asked.share(read.wordings.having, read.sentences.terms[best]) - asked_share,
        "lacking": 1.0 - covered if asked.values else 1.0,
        "heaviest": found.lacking[0] / total if found.lacking else 0.0,
        "second": found.lacking[1] / total if len(found.lacking) > 1 else 0.0,
        "num_lacking": float(len(found.lacking)),
        "unknown": asked.share(asked.unknown),
        "kind_lacking": float(len(asked.kinds - read.stated)),
        "kind_in_sentence": float(bool(asked.kinds) and asked.kinds <= read.states[best]),
        "names_lacking": float(len(not_in(asked.names, read.words))),
        "wordings": math.log(len(read.phrasings)),
        "sentences": float(len(read.states)),
        "chinese": float(asked.chinese),
    }


def by_vectors(
    question: NDArray[np.float32],
    wordings: NDArray[np.float32],
    answer: NDArray[np.float32],
    parts: NDArray[np.float32],
) -> dict[str, float]:
    """Return the measures of `BY_VECTORS`: cosines of a question and the parts of an entry.

    Args:
        question: [dimensions].
        wordings: [wordings, dimensions], the entry's own question first.
        answer: [dimensions], of its question and answer as one text.
        parts: [sentences, dimensions].
    """
    near, sentence, whole = wordings @ question, float((parts @ question).max()), float(answer @ question)
    return {
        "near_wording": float(near.max()),
        "near_own": float(near[0]),
        "near_three": float(np.sort(near)[-_BEST:].mean()),
        "near_sentence": sentence,
        "near_answer": whole,
        "sentence_gain": sentence - float(near.max()),
    }


def rows_of(names: Sequence[str], measured: Sequence[Mapping[str, float]]) -> NDArray[np.float64]:
    """Return the measures in the order of `names`, `[rows, names]`."""
    return np.array([[row[name] for name in names] for row in measured]).reshape(len(measured), len(names))
