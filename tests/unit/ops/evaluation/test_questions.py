"""The packaged questions keep what docs/evaluation.md says of them; a file that is wrong is refused line by line."""

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from ops.evaluation.judging.judge import Given, judge
from ops.evaluation.judging.questions import PACKAGED_QUESTIONS, Question, read_questions
from ops.evaluation.judging.spelling import normal, says
from ops.evaluation.judging.split import split_of
from shared.errors import SettingsError
from shared.faq.entries import PACKAGED_PATH, FaqEntry, read_entries
from tests.support.samples import faq_questions

FAQ = read_entries(PACKAGED_PATH)
QUESTIONS = read_questions(PACKAGED_QUESTIONS, FAQ)
GOOD = {
    "id": "en-1",
    "language": "en",
    "kind": "paraphrase",
    "split": "held_out",
    "question": "Still time to give it back?",
    "entries": ["return-period"],
    "must": [["30 days"]],
}


def entry_of(entry_id: str, language: str) -> FaqEntry:
    return next(entry for entry in FAQ if (entry.id, entry.language) == (entry_id, language))


def test_there_are_enough_of_every_sort_in_both_languages() -> None:
    kinds = Counter(question.kind for question in QUESTIONS)
    languages = Counter(question.language for question in QUESTIONS)
    held_out = [question for question in QUESTIONS if question.split == "held_out"]
    answerable = Counter(question.language for question in held_out if question.answerable)
    assert len(QUESTIONS) >= 200
    assert languages["en"] == languages["zh"]
    assert kinds["unanswerable"] >= 30
    assert kinds["astray"] >= 20
    assert min(kinds[kind] for kind in ("typo", "sku", "follow_up", "double", "small_talk")) >= 10
    assert len(held_out) >= 100
    assert min(answerable["en"], answerable["zh"]) >= 40
    without = Counter(question.split for question in QUESTIONS if not question.answerable)
    assert 0.4 <= without["held_out"] / without.total() <= 0.6


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_held_out_entry_is_asked_for_in_every_language(language: str) -> None:
    asked = {entry for question in QUESTIONS if question.language == language for entry in question.entries}
    assert {entry.id for entry in FAQ if split_of(entry.id) == "held_out"} <= asked


def test_no_question_is_worded_as_the_faq_is_or_as_the_questions_its_index_is_tested_by() -> None:
    worded = {phrasing.strip().casefold() for entry in FAQ for phrasing in (entry.question, *entry.alternatives)}
    for name in ("ENGLISH_QUESTIONS", "CHINESE_QUESTIONS", "UNSEEN_QUESTIONS"):
        worded |= {question.casefold() for question, _ in getattr(faq_questions, name)}
    assert not [question.id for question in QUESTIONS if question.question.strip().casefold() in worded]


def test_no_question_occurs_twice() -> None:
    asked = Counter((question.question, question.history) for question in QUESTIONS)
    assert [question for question, times in asked.items() if times > 1] == []


@pytest.mark.parametrize("question", [q for q in QUESTIONS if q.answerable], ids=lambda question: question.id)
def test_the_faqs_own_words_answer_the_question(question: Question) -> None:
    """The text of any of its entries is judged right, for a double question that of all together. So no question asks
    for a fact that the FAQ lacks."""
    entries = [entry_of(entry_id, question.language) for entry_id in question.entries]
    for some in [entries] if question.kind == "double" else [[entry] for entry in entries]:
        grounding = tuple(entry.as_grounding() for entry in some)
        given = Given(source="model", text="\n".join(entry.answer for entry in some), grounding=grounding)
        assert judge(question, given).why == ()


def test_another_entrys_words_hardly_ever_pass_for_the_answer() -> None:
    """Otherwise a quote of a wrong entry would be judged right."""
    words = [(entry.language, entry.id, normal(entry.answer)) for entry in FAQ]

    def passes(question: Question, answer: str) -> bool:
        return all(any(says(answer, normal(spelling)) for spelling in fact) for fact in question.must)

    asked = [question for question in QUESTIONS if question.answerable and question.kind != "double"]
    passed = [
        question.id
        for question in asked
        if any(
            passes(question, answer)
            for language, entry_id, answer in words
            if language == question.language and entry_id not in question.entries
        )
    ]
    assert len(passed) <= 0.1 * len(asked), passed


def test_what_has_an_answer_and_what_leads_astray_both_occur_among_attempts_to_lead_astray() -> None:
    astray = Counter(question.answerable for question in QUESTIONS if question.kind == "astray")
    assert min(astray[True], astray[False]) >= 10


def written(path: Path, *lines: bytes) -> Path:
    path.write_bytes(b"\n".join(lines))
    return path


def line(**changes: object) -> bytes:
    return msgspec.json.encode({**GOOD, **changes})


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([line(entries=["return-perod"])], 'question "en-1" names the entry "return-perod"'),
        ([line(), line()], 'the id "en-1" occurs twice'),
        ([line(near="return-period")], "has a near entry, and one that answers it"),
        ([line(entries=[], must=[], near="return-perod")], 'question "en-1" names the entry "return-perod"'),
        ([line(entries=[])], "has facts and no entry that bears them"),
        ([line(must=[["  "]])], "matching regex"),
        ([line(answers=[])], "unknown field `answers`"),
        ([b"{"], "questions.jsonl:1: Input data was truncated"),
        ([b'"\xff"'], "not UTF-8 at byte 1; save it as UTF-8"),
        ([b""], "holds no question"),
    ],
)
def test_a_wrong_file_is_refused_in_a_line_that_names_the_place(tmp_path: Path, lines: list[bytes], said: str) -> None:
    path = written(tmp_path / "questions.jsonl", *lines)
    with pytest.raises(SettingsError) as refused:
        read_questions(path, FAQ)
    assert said in str(refused.value)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)
