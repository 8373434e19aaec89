"""Find the sureness from which few of a shop's own near misses are claimed as answered.

The near misses are generated: it needs no questions of the shop's customers.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from ops.evaluation.decision.generator import near_misses
from ops.evaluation.judging.questions import Question
from ops.evaluation.judging.retrieval import hits_of
from shared.faq import FaqIndex, Language
from shared.faq.answer_policy import SHOWN
from shared.faq.decision.sureness import sureness_of
from shared.faq.entries import LANGUAGES

ALPHAS: Final[Mapping[Language, float]] = {"en": 0.08, "zh": 0.05}
"""So many near misses may be claimed as answered. On the demo's dev questions 0.05 instead of 0.08 costs 4 right
answers of 100 in Chinese and 15 in English."""
_MOST: Final = 400
"""More near misses of a language narrow the bound no further."""


class Calibrated(Struct, frozen=True, kw_only=True):
    """The sureness that `alpha` of `n` near misses reach at most."""

    sureness: float
    alpha: float
    n: int


def bounds_of(index: FaqIndex) -> dict[Language, Calibrated]:
    """Return the bound of each language that the FAQ has."""
    bounds: dict[Language, Calibrated] = {}
    for language in LANGUAGES:
        made = list(near_misses([entry for entry in index.entries if entry.language == language]))
        if made:
            some = [made[at * len(made) // min(_MOST, len(made))] for at in range(min(_MOST, len(made)))]
            bound = conformal(_surenesses(index, some), ALPHAS[language])
            bounds[language] = Calibrated(sureness=bound, alpha=ALPHAS[language], n=len(some))
    return bounds


def conformal(values: Sequence[float], alpha: float) -> float:
    """Return the least threshold t with (number of values from t on, and one) / (n + 1) <= alpha: then another near
    miss of the same kind reaches it with a probability of alpha at most (V. Vovk et al., "Algorithmic Learning in a
    Random World", 2005). Infinite where n is too small for alpha."""
    ordered = sorted(values, reverse=True)
    allowed = int(alpha * (len(ordered) + 1)) - 1
    if allowed < 0:
        return math.inf
    return math.nextafter(ordered[allowed], math.inf) if allowed < len(ordered) else -math.inf


def _surenesses(index: FaqIndex, questions: Sequence[Question]) -> list[float]:
    return [sureness_of(hits_of(question, index, k=SHOWN)) for question in questions]
