"""The two thresholds that decide how the best FAQ entry is used. From a certain sureness (the probability that the
entry answers the question) it is the answer; below that, from a certain search score, it is quoted. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shared.faq.entries import FaqHit


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From which sureness an entry answers, and from which score it is quoted.

    Attributes:
        confident: Sureness, 0..1, from which the best entry answers.
        weak: Score, 0..1, from which it is quoted; None: if it is related to the question (`FaqHit.related`).
    """

    confident: float
    weak: float | None = None


# A sureness of 0.5 is the packaged decision's own bound (docs/answers.md).
FITTED: Final = Thresholds(confident=0.5)


def sureness_of(hits: Sequence[FaqHit]) -> float:
    """Return how surely the best of `hits` (best first) answers the question; 0 without a hit."""
    return hits[0].sureness if hits else 0.0
