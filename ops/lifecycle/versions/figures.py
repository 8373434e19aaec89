"""A version's figures of the evaluation and guard questions, held against the champion's. Pure.

Each share comes with the number of questions behind it, as `en_right` with `en_right.n`. What is worse by chance is no
failure: a drop counts where it is more than five points and more than two standard errors.
"""

from collections.abc import Callable, Mapping, Sequence
from math import sqrt
from typing import Final

from ops.evaluation.judging.questions import Question
from ops.evaluation.judging.result import Judged

_LEAST_DROP: Final = 0.05
_ERRORS: Final = 2.0

_RIGHT: Final[Mapping[str, Callable[[Question], bool]]] = {
    "en_right": lambda question: question.answerable and question.language == "en",
    "zh_right": lambda question: question.answerable and question.language == "zh",
    "unanswerable_right": lambda question: not question.answerable and question.kind != "small_talk",
    "small_talk_right": lambda question: question.kind == "small_talk",
}
# Of answers that the model wrote, those whose figures nothing bears out: less is better.
_INVENTED: Final = "invented_by_model"


def figures_of(judged: Sequence[Judged]) -> dict[str, float]:
    """Return the shares of a run, each with its number of questions; those of no question are left out."""
    groups = {name: [one.verdict.right for one in judged if of(one.question)] for name, of in _RIGHT.items()}
    groups[_INVENTED] = [bool(one.verdict.invented) for one in judged if one.given.by_model]
    shares = {name: sum(group) / len(group) for name, group in groups.items() if group}
    return shares | {f"{name}.n": float(len(groups[name])) for name in shares}


def failures(ours: Mapping[str, float], champions: Mapping[str, float]) -> list[str]:
    """Return in which figures a version is worse than the champion, a line each. A figure that one of them lacks is not
    compared."""
    return [
        f"{name} is {ours[name]:.3f}, the champion's {champions[name]:.3f}"
        for name in (*_RIGHT, _INVENTED)
        if name in ours and name in champions and _worse(name, ours, champions)
    ]


def _worse(name: str, ours: Mapping[str, float], champions: Mapping[str, float]) -> bool:
    ours_n, champions_n = (figures.get(f"{name}.n", ours[f"{name}.n"]) for figures in (ours, champions))
    drop = (ours[name] - champions[name]) * (1.0 if name == _INVENTED else -1.0)
    pooled = (ours[name] * ours_n + champions[name] * champions_n) / (ours_n + champions_n)
    error = sqrt(pooled * (1.0 - pooled) * (1.0 / ours_n + 1.0 / champions_n))
    return drop > max(_LEAST_DROP, _ERRORS * error)
