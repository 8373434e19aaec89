"""Decide whether a question depends on the previous one: "And how long does that take?", "那运费呢？". Pure.

The wording decides, and the best score that the question gets alone. A question that finds an entry by itself is a new
question, even if it begins with "and".
"""

import re
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Final

import numpy as np
from numpy.typing import NDArray

# Weights, in a dependent question, of the previous question's terms and of the terms of the entry that answered it.
PREVIOUS_WEIGHT: Final = 0.7
GROUNDING_WEIGHT: Final = 0.25
# A question with at least this score does not depend on the previous one. The second value is for a question that has
# both an opening word and a reference ("and … that").
_FOUND_ALONE: Final = 0.45
_FOUND_THOUGH_IT_REFERS: Final = 0.85
# What a question of few words that refers back may score alone if the entry before may answer it ("can I pay it back
# early?"), and by how much that entry's score rises then. Of 45 dev follow-ups 39 find their entry so, without it 36;
# of 720 dev questions after a turn about something else 541 with and without it.
_FOUND_THOUGH_BORNE: Final = 0.6
BORNE_WEIGHT: Final = 2.0
# With an opening word or a reference, a question of at most this many words is dependent; with both, one word more.
_MOST_WORDS: Final = 3
_FEW_WORDS: Final = 2
# The share of its score that a hit keeps if it has none of the question's own words.
_KEPT_WITHOUT_OWN: Final = 0.4

_OPENER: Final = re.compile(
    r"^\W*(?:(?:ok|okay|hm+|alright|great|thanks|thank you)\b\W*)?"
    r"(?:(?:and|but|so|then|or)\b|(?:what|how)\s+(?:about|if|abt)\b)"
    r"|^\W*(?:好的?[，,])?(?:那|要是|如果|换成|然后|还有|所以|可是|但是)"
    r"|呢\W*$",
    re.IGNORECASE,
)
_REFERENCE: Final = re.compile(
    r"\b(?:it|its|that|thats|this|those|these|they|them|their|there|ones?|same|both|either|instead|then|else)\b"
    r"|它|这个|那个|这种|那种|这样|那样|那边|那里|这些|那些|这款|那款|同样|也是|也可以|也能|也要|其他|别的",
    re.IGNORECASE,
)
_ASKS: Final = re.compile(
    r"[?？]|\b(?:how|when|why|where|which|who|what)\b|多久|多少|几|怎么|怎样|为什么|为啥|哪|吗|呢|可以|能",
    re.IGNORECASE,
)


class Lean(Enum):
    """How a question depends on the previous one. `OPENLY`: its words refer back. `TERSELY`: it has too few words to be
    understood alone."""

    NOT = "not"
    OPENLY = "openly"
    TERSELY = "tersely"


def lean_of(question: str, weights: Mapping[str, float], score: float, *, borne: bool = False) -> Lean:
    """Return how a question depends on the previous one.

    Args:
        question: the question's text.
        weights: the weights of its terms.
        score: the share of these weights, 0 to 1, that the best entry covers.
        borne: the entry that answered the previous question may answer this one too.
    """
    words = content_words(weights)
    pointers = (_OPENER.search(question) is not None) + (_REFERENCE.search(question) is not None)
    if borne and pointers and words <= _MOST_WORDS and score < _FOUND_THOUGH_BORNE:
        return Lean.OPENLY
    if words >= _FEW_WORDS and score >= (_FOUND_THOUGH_IT_REFERS if pointers > 1 else _FOUND_ALONE):
        return Lean.NOT
    if pointers and words < _MOST_WORDS + pointers:
        return Lean.OPENLY
    tersely = words < _FEW_WORDS and score < _FOUND_ALONE and _ASKS.search(question) is not None
    return Lean.TERSELY if tersely else Lean.NOT


def content_words(terms: Collection[str]) -> float:
    """Return the number of the question's content words. Two Chinese characters count as one word."""
    latin = [term for term in terms if term.isascii() and not term.startswith("=")]
    return len(latin) + len([term for term in terms if len(term) == 1 and not term.isascii()]) / 2


def with_previous(
    weights: Mapping[str, float], previous: Mapping[str, float], grounding: Mapping[str, float]
) -> dict[str, float]:
    """Return the terms of a dependent question, extended by those of the previous question and of the entry that
    answered it. A term that occurs in several of them has its highest weight."""
    joined = dict(weights)
    for terms, share in ((previous, PREVIOUS_WEIGHT), (grounding, GROUNDING_WEIGHT)):
        for term, weight in terms.items():
            joined[term] = max(joined.get(term, 0.0), weight * share)
    return joined


def scores_of(
    joined: NDArray[np.float64], own: NDArray[np.float64], weights: Mapping[str, float]
) -> NDArray[np.float64]:
    """Return the scores [entries] of a dependent question.

    Args:
        joined: scores of all terms, those of the previous question included.
        own: scores of the question's own terms. An entry that has none of them is only on the same subject, and loses
            part of its score.
        weights: the weights of the question's own terms.
    """
    return joined * (_KEPT_WITHOUT_OWN + (1.0 - _KEPT_WITHOUT_OWN) * own) if weights else joined
