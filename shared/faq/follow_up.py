"""Decide whether a question leans on the one before it: "And how long does that take?", "那运费呢？". Pure.

Judged by its wording and by what it finds alone. A question that finds enough by itself is a new one, however it
begins.
"""

import re
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Final

import numpy as np
from numpy.typing import NDArray

# What a term of the question before counts in a question that leans on it, and a term of the entry that answered it.
PREVIOUS_WEIGHT: Final = 0.7
GROUNDING_WEIGHT: Final = 0.25
# A question that an entry covers so far by itself needs no other; one that opens and refers ("and … that") so far.
_FOUND_ALONE: Final = 0.45
_FOUND_THOUGH_IT_REFERS: Final = 0.85
# An opener or a reference makes a question lean that has no more words than these; both, one that has one more.
_MOST_WORDS: Final = 3
_FEW_WORDS: Final = 2
# What a hit keeps of its score that has none of the question's own words.
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
    """`OPENLY`: its words point back. `TERSELY`: it says too little to be asked of nothing."""

    NOT = "not"
    OPENLY = "openly"
    TERSELY = "tersely"


def lean_of(question: str, weights: Mapping[str, float], score: float) -> Lean:
    """Return how a question leans on the one before. `weights` are its own terms', `score` the share, in 0..1, of them
    that the best entry covers."""
    words = content_words(weights)
    pointers = (_OPENER.search(question) is not None) + (_REFERENCE.search(question) is not None)
    if words >= _FEW_WORDS and score >= (_FOUND_THOUGH_IT_REFERS if pointers > 1 else _FOUND_ALONE):
        return Lean.NOT
    if pointers and words < _MOST_WORDS + pointers:
        return Lean.OPENLY
    tersely = words < _FEW_WORDS and score < _FOUND_ALONE and _ASKS.search(question) is not None
    return Lean.TERSELY if tersely else Lean.NOT


def content_words(terms: Collection[str]) -> float:
    """Return how many of a question's words say what is asked. Two Chinese characters make one."""
    latin = sum(term.isascii() and not term.startswith("=") for term in terms)
    return latin + sum(len(term) == 1 and not term.isascii() for term in terms) / 2


def with_previous(
    weights: Mapping[str, float], previous: Mapping[str, float], grounding: Mapping[str, float]
) -> dict[str, float]:
    """Return the terms of a question that leans, with those of the question before and of the entry that answered it. A
    term counts as where it counts most."""
    joined = dict(weights)
    for terms, share in ((previous, PREVIOUS_WEIGHT), (grounding, GROUNDING_WEIGHT)):
        for term, weight in terms.items():
            joined[term] = max(joined.get(term, 0.0), weight * share)
    return joined


def scores_of(
    joined: NDArray[np.float64], own: NDArray[np.float64], weights: Mapping[str, float]
) -> NDArray[np.float64]:
    """[entries]: of a question that leans. `joined` are the shares of its terms with those before, `own` of its own
    alone: an entry that has none of what is asked now is only about the same."""
    return joined * (_KEPT_WITHOUT_OWN + (1.0 - _KEPT_WITHOUT_OWN) * own) if weights else joined
