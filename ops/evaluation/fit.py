"""From which score of an entry on it answers: chosen on the dev questions, with the FAQ's own words for answers. Pure.

Two thresholds (shared/answer_policy.py). `confident`: the lowest from which the best entry is the right one for nine of
ten questions, those without an answer among them, for the model says with the same assurance whatever it is given.
`weak`: where the entries that are offered with "I am not sure" and help outnumber those that do not by most; to a
question without an answer none helps.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from ops.evaluation.judge import Given, judge
from ops.evaluation.questions import Question
from ops.evaluation.retrieval import hits_of
from shared.answer_policy import Thresholds
from shared.faq import FaqHit, FaqIndex
from shared.faq.vectors import Embed

SURELY: Final = 0.9
"""So many of the best entries from `confident` on are to be right."""
_STEPS: Final = tuple(round(0.05 * step, 2) for step in range(1, 18))


class Row(Struct, frozen=True, kw_only=True):
    """From `score` on there are `n` questions with such an entry; to `right` of them it is the answer."""

    score: float
    n: int
    right: int


class Fit(Struct, frozen=True, kw_only=True):
    """`confident_rows` are of all questions, `weak_rows` of those whose best entry scores less than `confident`."""

    confident: float
    weak: float
    confident_rows: tuple[Row, ...]
    weak_rows: tuple[Row, ...]

    @property
    def thresholds(self) -> Thresholds:
        """As the policy takes them."""
        return Thresholds(confident=self.confident, weak=self.weak)


class _Looked(Struct, frozen=True):
    """A question and its best entry; `right` where the entry's words alone answer it."""

    question: Question
    best: FaqHit
    right: bool


def fit(questions: Sequence[Question], index: FaqIndex, embed: Embed | None = None) -> Fit:
    """On the questions given, which are to be the dev ones alone. `embed` is the index's own. Small talk finds
    nothing."""
    asked = [question for question in questions if question.kind != "small_talk"]
    looked = [one for question in asked if (one := _look(question, index, embed)) is not None]
    confident_rows = _rows(looked, [one.best.entry.id in one.question.entries for one in looked])
    confident = _lowest(confident_rows, SURELY, otherwise=_STEPS[-1])
    unsure = [one for one in looked if one.best.score < confident]
    weak_rows = _rows(unsure, [one.right for one in unsure])
    best = max((row for row in weak_rows if _net(row) > 0), key=_net, default=None)
    weak = confident if best is None else best.score
    return Fit(confident=confident, weak=weak, confident_rows=confident_rows, weak_rows=weak_rows)


def _look(question: Question, index: FaqIndex, embed: Embed | None) -> _Looked | None:
    hits = hits_of(question, index, embed, k=1)
    if not hits:
        return None
    quoted = Given(source="faq", text=hits[0].entry.answer, grounding=(hits[0].entry.as_grounding(),))
    return _Looked(question, hits[0], question.answerable and judge(question, quoted).right)


def _rows(looked: Sequence[_Looked], right: Sequence[bool]) -> tuple[Row, ...]:
    def row(score: float) -> Row:
        some = [is_right for one, is_right in zip(looked, right, strict=True) if one.best.score >= score]
        return Row(score=score, n=len(some), right=sum(some))

    return tuple(row(score) for score in _STEPS)


def _net(row: Row) -> int:
    return 2 * row.right - row.n


def _lowest(rows: Sequence[Row], share: float, *, otherwise: float) -> float:
    """The lowest score from which on that share is right; of rows without a question none counts."""
    return min((row.score for row in rows if row.n and row.right >= share * row.n), default=otherwise)
