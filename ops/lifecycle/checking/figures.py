"""Judge a version by its answers to the evaluation and guard questions: against a floor, and against the champion.
Pure.

Each share comes with the number of questions behind it, as `en_right` with `en_right.n`. Both versions were asked the
same questions, so the comparison is paired: only questions that one of them alone answered well count (McNemar's test).
A drop is a failure if it is more than five points and its probability by chance is at most 1 in 20, by the mid-p value.
The exact p-value would accept a loss of 4 of 20 questions (Fagerland, Lydersen and Laake, "The McNemar test for binary
matched-pairs data", 2013). A drop of more than 15 points, and of at least four questions, always fails: otherwise a
class of 20 could lose five questions and win one. Fewer than 4 lost questions can be chance, and 4 are five points of
80, so a figure with fewer questions can hide a loss of five points. Therefore all questions are compared together too.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from math import comb
from typing import Final

from ops.evaluation.judging.questions import Question
from ops.evaluation.judging.result import Judged
from ops.evaluation.judging.spelling import normal

_LEAST_DROP: Final = 0.05
_CHANCE: Final = 0.05
_MOST_DROP: Final = 0.15
_LEAST_LOST: Final = 4
# With 60 questions a loss of more than five points is at least four questions, which is not chance.
LEAST_QUESTIONS: Final = 60
_NO_WORD: Final = re.compile(r"[\W_]+")
_GOOD: Final = "1"
_LEFT_OUT: Final = "-"

_RIGHT: Final[Mapping[str, Callable[[Question], bool]]] = {
    "en_right": lambda question: question.answerable and question.language == "en",
    "zh_right": lambda question: question.answerable and question.language == "zh",
    "unanswerable_right": lambda question: not question.answerable and question.kind != "small_talk",
    "small_talk_right": lambda question: question.kind == "small_talk",
}
# Shares of the model's answers that contain a figure without a source: lower is better.
_INVENTED: Final = "invented_by_model"
_FLOORED: Final = ("en_right", "zh_right")
_ALL: Final = "right"


def different(judged: Sequence[Judged]) -> list[Judged]:
    """Return the first answer to each question. Questions that differ in case, width, punctuation or spelled-out
    numbers only, after the same turns, are one."""
    found: dict[tuple[str, ...], Judged] = {}
    for one in judged:
        turns = (text for turn in one.question.history for text in (turn.user, turn.assistant))
        found.setdefault(tuple(_words(text) for text in (one.question.question, *turns)), one)
    return list(found.values())


def _words(text: str) -> str:
    return _NO_WORD.sub(" ", normal(text)).strip() or text


def outcomes_of(judged: Sequence[Judged]) -> dict[str, str]:
    """Return for each figure one character per question, in the questions' order: 1 is good, 0 is bad, - does not count
    because the model did not write the answer. Figures without a question are left out."""
    outcomes = {
        name: "".join(str(int(one.verdict.right)) for one in judged if of(one.question)) for name, of in _RIGHT.items()
    }
    outcomes[_INVENTED] = "".join(
        str(int(not one.verdict.invented)) if one.given.by_model else _LEFT_OUT for one in judged
    )
    return {name: digits for name, digits in outcomes.items() if digits.strip(_LEFT_OUT)}


def shares_of(outcomes: Mapping[str, str]) -> dict[str, float]:
    """Return the share of each figure, and its number of questions."""
    shares: dict[str, float] = {}
    for name, digits in outcomes.items():
        count = len(digits) - digits.count(_LEFT_OUT)
        good = digits.count(_GOOD) / count
        shares |= {name: 1.0 - good if name == _INVENTED else good, f"{name}.n": float(count)}
    return shares


def below_floor(outcomes: Mapping[str, str], least_right: float) -> list[str]:
    """Return a line for each figure in which the version is below the floor. The figures are each language's, and the
    total."""
    answered = {name: outcomes[name] for name in _FLOORED if name in outcomes}
    answered[_ALL] = _of_all(outcomes)
    return [
        f"{name} is {digits.count(_GOOD) / len(digits):.3f}, at least {least_right:g} is needed"
        for name, digits in answered.items()
        if digits.count(_GOOD) < least_right * len(digits)
    ]


def worse(ours: Mapping[str, str], champions: Mapping[str, str]) -> list[str]:
    """Return a line for each figure in which a version is worse than the champion, which was asked the same questions.
    If no figure is worse, all questions together are compared."""
    shares, theirs = shares_of(ours), shares_of(champions)
    found = [
        f"{name} is {shares[name]:.3f}, the champion's {theirs[name]:.3f}"
        for name in ours
        if name in champions and _worse(ours[name], champions[name])
    ]
    whole, champions_whole = _of_all(ours), _of_all(champions)
    if found or len(whole) != len(champions_whole) or not _worse(whole, champions_whole):
        return found
    right, champions_right = (digits.count(_GOOD) / len(digits) for digits in (whole, champions_whole))
    return [f"{_ALL} is {right:.3f}, the champion's {champions_right:.3f}"]


def _of_all(outcomes: Mapping[str, str]) -> str:
    return "".join(outcomes.get(name, "") for name in _RIGHT)


def _worse(ours: str, champions: str) -> bool:
    pairs = [pair for pair in zip(ours, champions, strict=True) if _LEFT_OUT not in pair]
    lost = sum(theirs == _GOOD and own != _GOOD for own, theirs in pairs)
    won = sum(own == _GOOD and theirs != _GOOD for own, theirs in pairs)
    ways = [comb(lost + won, each) for each in range(lost, lost + won + 1)]
    chance = (sum(ways) - ways[0] / 2) / 2 ** (lost + won)
    is_certain = chance <= _CHANCE or (lost - won >= _LEAST_LOST and lost - won > _MOST_DROP * len(pairs))
    return lost - won > _LEAST_DROP * len(pairs) and is_certain
