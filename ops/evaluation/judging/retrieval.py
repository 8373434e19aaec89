"""Judge what the FAQ's index finds for the questions, by itself: recall, and how surely each best entry was found."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from ops.evaluation.judging.judge import retrieved
from ops.evaluation.judging.questions import Question, turns_of
from shared.faq import FaqHit, FaqIndex

FIRST: Final = 3


class Hit(Struct, frozen=True):
    id: str
    score: float


class Recall(Struct, frozen=True, kw_only=True):
    """Recall over the questions that the FAQ answers: the share whose entries are the best hit, and among the best
    three."""

    n: int
    at_1: float | None
    at_3: float | None


def find(questions: Sequence[Question], index: FaqIndex) -> list[tuple[Hit, ...]]:
    """Return the best three entries of each."""
    return [
        tuple(Hit(hit.entry.id, round(hit.score, 3)) for hit in hits_of(question, index, k=FIRST))
        for question in questions
    ]


def hits_of(question: Question, index: FaqIndex, *, k: int) -> tuple[FaqHit, ...]:
    """Return the best `k`, as a worker finds them: the turns before the question are known."""
    text = question.question
    return index.find(
        text,
        k=k,
        previous=turns_of(question, index.entries, name=question.id, asked_unix_ms=0),
        vector=index.vector_of(text),
    ).hits


def recall(questions: Sequence[Question], found: Sequence[Sequence[Hit]]) -> Recall:
    """Return the recall over the questions that the FAQ answers; the shares are None without such questions."""
    pairs = [
        (question, [hit.id for hit in hits])
        for question, hits in zip(questions, found, strict=True)
        if question.answerable
    ]
    if not pairs:
        return Recall(n=0, at_1=None, at_3=None)
    at_1, at_3 = (sum(retrieved(question, ids, k) for question, ids in pairs) / len(pairs) for k in (1, FIRST))
    return Recall(n=len(pairs), at_1=at_1, at_3=at_3)
