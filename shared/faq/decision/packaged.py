"""Load the trained classifier that decides whether an FAQ entry answers a question, and evaluate it.

The file has one forest of decision trees for each embedding model that the project knows, and one for shops without an
embedding model. `python -m ops.evaluation.decision` trains them and writes the file.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from shared.faq.decision.features import rows_of
from shared.faq.decision.trees import Forest, Trees
from shared.wire.messages import Language

PACKAGED: Final = Path(__file__).with_name("decision.json")
PROBE: Final = "Where is my order?"
"""An encoder is recognised by its vector of this text."""
# The cosine of two vectors of one encoder whose weights were rounded differently.
_SAME_ENCODER: Final = 0.98


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


class Encoded(msgspec.Struct, frozen=True, kw_only=True):
    """The decision by the cosines of one encoder.

    Attributes:
        encoder: Its name, for readers.
        probe: Its vector of `PROBE`. The cosines of another encoder mean something else.
        decision: The forest and its bounds.
    """

    encoder: str
    probe: tuple[float, ...]
    decision: Decision


class Decisions(msgspec.Struct, frozen=True, kw_only=True):
    """The file's decisions: for a question without an embedding, and by encoder."""

    terms: Decision
    vectors: tuple[Encoded, ...]


class Decider:
    """Computes how surely an entry answers a question, from measures of the two."""

    def __init__(self, decision: Decision) -> None:
        self._trees = Trees.of(decision.forest)
        self._bounds = decision.bounds
        self.names = frozenset(decision.forest.names)

    def sureness(self, measured: Sequence[Mapping[str, float]], language: Language) -> list[float]:
        """Return how surely, 0..1, each of several entries answers its question; 0.5 at the language's bound."""
        if not measured:
            return []
        logits = self._trees.logits(rows_of(self._trees.names, measured)) - self._bounds[language].logit
        return [1.0 / (1.0 + math.exp(-logit)) for logit in logits.tolist()]


class Deciders:
    """The packaged decisions: by terms alone, and by the cosines of an encoder."""

    def __init__(self, decisions: Decisions) -> None:
        self.terms = Decider(decisions.terms)
        self._encoded = [(np.array(each.probe), Decider(each.decision)) for each in decisions.vectors]

    def of_encoder(self, probe: NDArray[np.float32]) -> Decider | None:
        """Return the decision by the cosines of the encoder that has this vector of `PROBE`; None if it is unknown."""
        for known, decider in self._encoded:
            if known.shape == probe.shape and float(known @ probe) >= _SAME_ENCODER * float(np.linalg.norm(known)):
                return decider
        return None


@cache
def deciders() -> Deciders:
    """Return the packaged decisions, read once a process."""
    return Deciders(msgspec.json.decode(PACKAGED.read_bytes(), type=Decisions))
