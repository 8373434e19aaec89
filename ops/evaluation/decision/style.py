"""Whether the style of a set's questions reveals which of them are answerable. Pure.

A decision that is tested on such a set may look at the question alone and seem good (measured: AUC 0.81 to 0.98 on sets
of near misses written by one person and answerable questions by another).
"""

import math
import re
from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import Final

_FOLDS: Final = 5
_TOKEN: Final = re.compile(r"[a-z0-9']+|[\u3400-\u9fff]|[?？]")

MOST: Final = 0.6
"""The AUC up to which a set is fit to test a decision."""


def question_only_auc(groups: Sequence[Hashable], questions: Sequence[str], answerable: Sequence[bool]) -> float:
    """Return the AUC with which words and pairs of words of the question alone separate the answerable ones.

    A naive Bayes classifier, cross-validated by `groups` (as the entries that are asked about): the words of a topic
    reveal nothing.
    """
    scores: list[tuple[float, bool]] = []
    order = {group: place for place, group in enumerate(dict.fromkeys(groups))}
    folds = [order[group] % _FOLDS for group in groups]
    for fold in range(_FOLDS):
        counts = {True: Counter[str](), False: Counter[str]()}
        for own, question, label in zip(folds, questions, answerable, strict=True):
            if own != fold:
                counts[label].update(_features(question))
        totals = {label: sum(counts[label].values()) + len(counts[True] | counts[False]) for label in counts}
        for own, question, label in zip(folds, questions, answerable, strict=True):
            if own == fold:
                score = sum(
                    math.log((counts[True][word] + 1) / totals[True])
                    - math.log((counts[False][word] + 1) / totals[False])
                    for word in _features(question)
                )
                scores.append((score, label))
    return _auc(scores)


def _features(question: str) -> set[str]:
    words = _TOKEN.findall(question.lower())
    return {*words, *(f"{one} {other}" for one, other in pairwise(words)), f"first {words[:1]}"}


def _auc(scores: Sequence[tuple[float, bool]]) -> float:
    yes = [score for score, label in scores if label]
    no = [score for score, label in scores if not label]
    if not yes or not no:
        return 0.5
    wins = sum((one > other) + 0.5 * (one == other) for one in yes for other in no)
    return wins / (len(yes) * len(no))
