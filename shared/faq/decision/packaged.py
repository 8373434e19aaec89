"""Load and evaluate the packaged decision: one forest for questions with an embedding, one for those without.

`python -m ops.evaluation.decision` writes its file.
"""

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from shared.faq.decision.features import BY_VECTORS, row_of
from shared.faq.decision.trees import Forest, Trees
from shared.wire.messages import Language

PACKAGED: Final = Path(__file__).with_name("decision.json")


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """The threshold of one language, by a conformal bound on near misses.

    Attributes:
        logit: From it on an entry answers: a sureness of 0.5.
        alpha: The share of near misses that may reach it.
        n: The near misses that it was found on.
    """

    logit: float
    alpha: float
    n: int


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A forest, and its threshold by language."""

    forest: Forest
    bounds: dict[str, Bound]


class Decisions(msgspec.Struct, frozen=True, kw_only=True):
    """The file's two decisions: for a question with an embedding, and for one without."""

    terms: Decision
    vectors: Decision


class Decider:
    """Computes how surely an entry answers a question, from measures of the two."""

    def __init__(self, decisions: Decisions) -> None:
        self._decisions = decisions
        self._terms = Trees.of(decisions.terms.forest)
        self._vectors = Trees.of(decisions.vectors.forest)

    def sureness(self, measured: Mapping[str, float], language: Language) -> float:
        """Return the sureness, 0..1, that the entry answers the question; 0.5 at the language's bound."""
        with_vectors = measured.keys() >= set(BY_VECTORS)
        trees = self._vectors if with_vectors else self._terms
        bounds = (self._decisions.vectors if with_vectors else self._decisions.terms).bounds
        logit = trees.logit(row_of(trees.names, measured)) - bounds[language].logit
        return 1.0 / (1.0 + math.exp(-logit))


@cache
def decider() -> Decider:
    """Return the packaged decision, read once a process."""
    return Decider(msgspec.json.decode(PACKAGED.read_bytes(), type=Decisions))
