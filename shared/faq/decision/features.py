"""Compute the numbers from which the trained classifier decides whether an FAQ entry answers a question. Pure.

Each number compares the two: terms that both contain, or terms of the question that the entry lacks. None describes the
question alone. The training questions that an entry does not quite answer were written by a few people, whose style
differs from customers'; a classifier that saw the question alone would learn to recognise those authors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from shared.facts.proper import proper_names, unknown_names, words_of
from shared.faq.decision.asked import asks_for, states
from shared.faq.decision.same import Core, cores_of
from shared.faq.entries import FaqEntry
from shared.faq.speech.polarity import opening_of
from shared.faq.speech.sentences import sentences
from shared.faq.terms import TermExtractor
from shared.faq.words.fold import plain_entry

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
class Read:
    """The terms of an entry.

    Attributes:
        wordings: The terms of each of its wordings, its own question's first.
        sentences: The terms of each sentence of its answer.
        states: The kinds of fact that each sentence states.
        words: All its words; a name in a question is checked against them.
        opens: Whether its answer opens with "Yes" or "No".
        unanswered: If the answer lists names, those that only its wordings for the search have: "any outlet in Berlin",
            and the answer lists four other cities.
        cores: The words that ask for something of each wording (`core_of`).
    """

    wordings: tuple[frozenset[str], ...]
    sentences: tuple[frozenset[str], ...]
    states: tuple[frozenset[str], ...]
    words: frozenset[str]
    opens: bool
    unanswered: frozenset[str]
    cores: frozenset[Core]

    @classmethod
    def of(cls, entry: FaqEntry, terms_of: TermExtractor) -> Self:
        """Read an entry."""
        parts = sentences_of(entry)
        said = words_of((entry.question, *entry.alternatives, entry.answer))
        return cls(
            tuple(frozenset(terms_of(plain_entry(wording))) for wording in entry.wordings),
            tuple(frozenset(terms_of(plain_entry(part))) for part in parts),
            tuple(map(states, parts)),
            words_of((*entry.wordings, entry.answer)),
            opening_of(entry.answer) is not None,
            frozenset(name for also in entry.also for name in unknown_names(also, said) if proper_names(entry.answer)),
            frozenset[Core]().union(*(cores_of(plain_entry(wording)) for wording in entry.wordings)),
        )


def sentences_of(entry: FaqEntry) -> list[str]:
    """Return the sentences of an entry's answer, one at least."""
    return [part.strip() for part in sentences(entry.answer) if part.strip()] or [entry.answer]


@dataclass(frozen=True, slots=True)
class Asked:
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

    def share(self, terms: frozenset[str]) -> float:
        """Return the share, 0..1, of the question's weight that these terms have."""
        total = sum(self.values.values())
        return sum(value for term, value in self.values.items() if term in terms) / total if total else 0.0


def fits_of(asked: Asked, read: Read) -> list[float]:
    """Return for each sentence of the answer its share, 0..1, of the question's weight."""
    return [asked.share(terms) for terms in read.sentences]


def by_terms(asked: Asked, read: Read, *, score: float, lead: float, rank: int) -> dict[str, float]:
    """Return the measures of `BY_TERMS`.

    Args:
        asked: The question.
        read: The entry.
        score: The entry's score, 0..1.
        lead: Its score minus the best other entry's.
        rank: Its place in the search, from 0.
    """
    questions = frozenset[str]().union(*read.wordings)
    answer = frozenset[str]().union(*read.sentences)
    fits = fits_of(asked, read)
    best = max(range(len(fits)), key=fits.__getitem__)
    known = questions | answer
    lacking = sorted((value for term, value in asked.values.items() if term not in known), reverse=True)
    total = sum(asked.values.values()) or 1.0
    asked_share, covered = asked.share(questions), asked.share(known)
    stated = frozenset[str]().union(*read.states)
    own = read.wordings[0]
    return {
        "score": score,
        "lead": lead,
        "rank": float(rank),
        "asked": asked_share,
        "answered": asked.share(answer),
        "covered": covered,
        "nearest": max(asked.share(terms) for terms in read.wordings),
        "alike": max(_alike(asked, terms) for terms in read.wordings),
        "own": asked.share(own),
        "sentence": fits[best],
        "sentence_own": max(asked.share(terms | own) for terms in read.sentences),
        "only_answer": covered - asked_share,
        "only_sentence": asked.share(read.sentences[best] | questions) - asked_share,
        "lacking": 1.0 - covered if asked.values else 1.0,
        "heaviest": lacking[0] / total if lacking else 0.0,
        "second": lacking[1] / total if len(lacking) > 1 else 0.0,
        "num_lacking": float(len(lacking)),
        "unknown": asked.share(asked.unknown),
        "kind_lacking": float(len(asked.kinds - stated)),
        "kind_in_sentence": float(bool(asked.kinds) and asked.kinds <= read.states[best]),
        "names_lacking": float(len(unknown_names(asked.text, read.words))),
        "wordings": float(np.log(len(read.wordings))),
        "sentences": float(len(read.sentences)),
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


def _alike(asked: Asked, wording: frozenset[str]) -> float:
    """Return the Jaccard index of the terms of a question and a wording."""
    terms = asked.values.keys()
    either = len(terms | wording)
    return len(terms & wording) / either if either else 0.0


def row_of(names: Sequence[str], measured: Mapping[str, float]) -> NDArray[np.float64]:
    """Return the measures in the order of `names`."""
    return np.array([measured[name] for name in names])
