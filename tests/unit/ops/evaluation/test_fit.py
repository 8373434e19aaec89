"""Thresholds follow from the questions that they are fitted on, and from no held-out one."""

import msgspec

from ops.evaluation.judging.fit import SURELY, fit
from ops.evaluation.judging.questions import Question
from ops.evaluation.judging.retrieval import find
from ops.evaluation.program import fit_on_dev
from shared.faq import FaqIndex
from shared.faq.entries import FaqEntry


def entry(entry_id: str, question: str, answer: str) -> FaqEntry:
    return FaqEntry(id=entry_id, topic="t", language="en", question=question, alternatives=(), answer=answer)


INDEX = FaqIndex(
    [
        entry("bicycle", "Do you repair bicycles?", "Yes, for 20 euros."),
        entry("lantern", "How bright is the lantern?", "It shines with 300 lumen."),
        entry("kettle", "How loud is the kettle?", "It whistles."),
    ]
)


def question(text: str, *entries: str, must: str = "", kind: str = "paraphrase", split: str = "dev") -> Question:
    fields = {"id": "q", "language": "en", "kind": kind, "split": split, "question": text, "entries": entries}
    return msgspec.convert({**fields, "must": [[must]] if must else []}, Question)


SURE = [
    question("do you repair my bicycles", "bicycle", must="20 euros"),
    question("how bright is this lantern", "lantern", must="300"),
    question("how loud is your kettle", "kettle", must="whistles"),
]
MISLED = [question("how loud is it", "lantern", must="300")] * 3
UNSURE = question("who repairs a broken promise, a heart, a friendship gone cold", kind="unanswerable")


def test_questions_that_find_their_entries_let_the_model_answer_from_low_scores_on() -> None:
    fitted = fit(SURE, INDEX)
    assert (fitted.confident_rows[0].n, fitted.confident_rows[0].right) == (3, 3)
    assert fitted.confident == fitted.confident_rows[0].score


def test_an_entry_that_misleads_raises_the_confident_threshold() -> None:
    (misleads, *_) = INDEX.search(MISLED[0].question)
    assert fit([*SURE, *MISLED], INDEX).confident > misleads.sureness


def test_an_entry_that_helps_less_often_than_not_is_not_offered() -> None:
    """Whether it is another question's, or the question has no answer at all."""
    score = find([UNSURE], INDEX)[0][0].score
    fitted = fit([*SURE, *MISLED, UNSURE], INDEX)
    assert fitted.weak > score
    assert fitted.weak_rows[0].misled == 1


def test_a_question_without_an_answer_that_is_taken_for_one_raises_the_confident_threshold() -> None:
    """However many others are right."""
    lured = question("how loud is your kettle and the neighbours", kind="unanswerable")
    below = fit([*SURE] * 9, INDEX)
    fitted = fit([*([*SURE] * 9), lured], INDEX)
    row = next(row for row in fitted.confident_rows if row.score == below.confident)
    assert row.right >= SURELY * row.n
    assert (row.misled, fitted.confident > below.confident) == (1, True)


def test_held_out_questions_are_not_fitted_on() -> None:
    held_out = [question("how loud is it", "lantern", must="300", split="held_out")] * 3
    assert fit_on_dev([*SURE, *held_out], INDEX) == fit_on_dev(SURE, INDEX)
    assert fit_on_dev(held_out, INDEX) is None


def test_small_talk_says_nothing_of_scores() -> None:
    talk = question("how loud is the kettle", kind="small_talk")
    assert fit([*SURE, talk], INDEX) == fit(SURE, INDEX)
