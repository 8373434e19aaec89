"""Choose the policy's two thresholds (shared/faq/answer_policy.py) on the dev questions, with FAQ entries as answers.
Pure.

`confident` is the lowest sureness from which two conditions hold. The best entry is the right one for 95 of 100
questions, those without an answer included. At most one in ten questions without an answer reaches it, since the model
answers such a question with the same assurance. `weak` is the score from which the quoted entries that help outnumber
the others by most; if none does, the least that no entry reaches. No entry helps with a question without an answer.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from ops.evaluation.judging.judge import Given, judge
from ops.evaluation.judging.questions import Question
from ops.evaluation.judging.retrieval import hits_of
from shared.faq import FaqHit, FaqIndex
from shared.faq.answer_policy import SHOWN, quoted
from shared.faq.decision.sureness import Thresholds, sureness_of

SURELY: Final = 0.95
"""So many of the best entries from `confident` on are to be right."""
MISLED: Final = 0.1
"""So many of the questions without an answer may be taken, from `confident` on, for one that has."""
_STEPS: Final = tuple(round(0.05 * step, 2) for step in range(1, 18))


class FitRow(Struct, frozen=True, kw_only=True):
    """A row of the table. `n` questions have a best entry with at least this `score` (in `confident_rows`, sureness).
    It is the answer to `right` of them, and `misled` of them have no answer."""

    score: float
    n: int
    right: int
    misled: int


class Fit(Struct, frozen=True, kw_only=True):
    """`confident_rows` are of all questions, `weak_rows` of those whose best entry is less sure than `confident`."""

    confident: float
    weak: float
    confident_rows: tuple[FitRow, ...]
    weak_rows: tuple[FitRow, ...]

    @property
    def thresholds(self) -> Thresholds:
        """Return the thresholds as the policy takes them."""
        return Thresholds(confident=self.confident, weak=self.weak)


class _Looked(Struct, frozen=True):
    """A question and its best entry; `right` where what is shown in doubt answers it."""

    question: Question
    best: FaqHit
    sureness: float
    right: bool


def fit(questions: Sequence[Question], index: FaqIndex) -> Fit:
    """Fit the thresholds on the given questions, which must be only the dev ones. Small talk finds no entry."""
    asked = [question for question in questions if question.kind != "small_talk"]
    looked = [one for question in asked if (one := _look(question, index)) is not None]
    surely = [one.best.entry.id in one.question.entries for one in looked]
    confident_rows = _rows(looked, [one.sureness for one in looked], surely)
    without = sum(not question.answerable for question in asked)
    confident = _lowest(confident_rows, without, otherwise=_STEPS[-1])
    unsure = [one for one in looked if one.sureness < confident]
    weak_rows = _rows(unsure, [one.best.score for one in unsure], [one.right for one in unsure])
    best = max((row for row in weak_rows if _net(row) > 0), key=_net, default=None)
    none = next((row.score for row in weak_rows if not row.n), _STEPS[-1])
    weak = none if best is None else best.score
    return Fit(confident=confident, weak=weak, confident_rows=confident_rows, weak_rows=weak_rows)


def _look(question: Question, index: FaqIndex) -> _Looked | None:
    hits = hits_of(question, index, k=SHOWN)
    if not hits:
        return None
    shown = [hit.entry for hit in quoted(hits)]
    given = Given(
        source="faq",
        text="\n".join(entry.answer for entry in shown),
        grounding=tuple(entry.as_grounding() for entry in shown),
    )
    return _Looked(question, hits[0], sureness_of(hits), question.answerable and judge(question, given).right)


def _rows(looked: Sequence[_Looked], scores: Sequence[float], right: Sequence[bool]) -> tuple[FitRow, ...]:
    def row(score: float) -> FitRow:
        some = [at for at, one in enumerate(scores) if one >= score]
        misled = sum(not looked[at].question.answerable for at in some)
        return FitRow(score=score, n=len(some), right=sum(right[at] for at in some), misled=misled)

    return tuple(row(score) for score in _STEPS)


def _net(row: FitRow) -> int:
    return 2 * row.right - row.n


def _lowest(rows: Sequence[FitRow], without: int, *, otherwise: float) -> float:
    """Return the lowest score from which on enough are right and not too many of the `without` an answer are misled; of
    rows without a question none counts."""
    sure = [row for row in rows if row.n and row.right >= SURELY * row.n and row.misled <= MISLED * without]
    return min((row.score for row in sure), default=otherwise)
