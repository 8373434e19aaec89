"""Fit the decision on the dev halves, and its bounds by written near misses that it was not fitted on. Pure.

Generated near misses are no part of the bounds: in Chinese they are closer to their entries than written ones (on the
dev shops their median is at what one written near miss in ten reaches)."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ops.evaluation.decision.boosting import fit_trees
from ops.evaluation.decision.calibrating import ALPHAS, conformal
from ops.evaluation.decision.examples import Example
from shared.faq import Language
from shared.faq.decision.features import rows_of
from shared.faq.decision.packaged import Bound, Decision
from shared.faq.decision.trees import Forest, Trees
from shared.faq.entries import LANGUAGES

_FOLDS: Final = 3
# A near miss that comes first is what the decision is for; the second and third hits are mostly clear.
_NEAR_WEIGHT: Final = 1.5
_BEHIND_WEIGHT: Final = 0.5
_ALSO_WEIGHT: Final = 0.5


def train(examples: Sequence[Example], names: Sequence[str]) -> Decision:
    """Return the decision by the measures `names`, fitted on the dev examples."""
    dev = [example for example in examples if example.split == "dev"]
    logits = np.zeros(len(dev))
    folds = np.array([_fold(example.question) for example in dev])
    for fold in range(_FOLDS):
        trees = Trees.of(_fit([each for each, own in zip(dev, folds, strict=True) if own != fold], names))
        (kept,) = np.nonzero(folds == fold)
        logits[kept] = trees.logits(_rows([dev[at] for at in kept], names))
    bounds: dict[str, Bound] = {language: _bound(dev, logits, language) for language in LANGUAGES}
    return Decision(forest=_fit(dev, names), bounds=bounds)


def _bound(dev: Sequence[Example], logits: NDArray[np.float64], language: Language) -> Bound:
    near = [
        logit
        for example, logit in zip(dev, logits, strict=True)
        if example.kind == "near" and example.rank == 0 and example.language == language
    ]
    return Bound(logit=conformal(near, ALPHAS[language]), alpha=ALPHAS[language], n=len(near))


def _fit(examples: Sequence[Example], names: Sequence[str]) -> Forest:
    labels = np.array([float(example.answers) for example in examples])
    return fit_trees(_rows(examples, names), labels, np.array([_weight(each) for each in examples]), names)


def _weight(example: Example) -> float:
    weight = _BEHIND_WEIGHT if example.rank > 0 else _NEAR_WEIGHT if example.kind == "near" else 1.0
    return weight * (_ALSO_WEIGHT if example.kind == "also" else 1.0)


def _rows(examples: Sequence[Example], names: Sequence[str]) -> NDArray[np.float64]:
    return rows_of(names, [example.measured for example in examples])


def _fold(question: str) -> int:
    return sum(question.encode()) % _FOLDS
