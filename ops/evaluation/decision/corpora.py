"""The shops whose questions measure the answer policy's decisions: the demo's, and invented ones (ops/evaluation/sets).

Each has an FAQ and questions. A near miss names the entry that it is close to but that does not answer it (`near`), and
mostly the sentence that would. With that sentence in the entry the same question is answerable, so a question's style
cannot reveal which it is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from ops.evaluation.judging.questions import PACKAGED_QUESTIONS, Question, read_questions
from shared.faq import FaqEntry, Language
from shared.faq.entries import PACKAGED_PATH, read_entries

SETS: Final = Path(__file__).parents[1] / "sets"
NEAR_MISSES: Final = SETS / "near_misses.jsonl"
_FOLLOW_UPS: Final = "follow_ups.jsonl"
FOLLOW_UPS: Final = SETS / _FOLLOW_UPS


@dataclass(frozen=True, slots=True)
class Corpus:
    """A shop's FAQ, and questions to it. The decision is trained on the dev ones of `questions` alone."""

    name: str
    entries: Sequence[FaqEntry]
    questions: Sequence[Question]
    follow_ups: Sequence[Question]


def corpora() -> list[Corpus]:
    """Return the demo's shop and the invented ones."""
    entries = read_entries(PACKAGED_PATH)
    questions = [*read_questions(PACKAGED_QUESTIONS, entries), *read_questions(NEAR_MISSES, entries)]
    demo = Corpus("demo", entries, questions, read_questions(FOLLOW_UPS, entries))
    return [demo, *(_invented(folder) for folder in sorted(SETS.iterdir()) if folder.is_dir())]


def _invented(folder: Path) -> Corpus:
    entries = read_entries(folder / "faq.json")
    follow_ups = folder / _FOLLOW_UPS
    return Corpus(
        folder.name,
        entries,
        read_questions(folder / "questions.jsonl", entries),
        read_questions(follow_ups, entries) if follow_ups.is_file() else (),
    )


def told(entries: Sequence[FaqEntry], sentences: dict[tuple[str, Language], str]) -> list[FaqEntry]:
    """Return the entries, each with its sentence behind its answer, by id and language."""

    def with_sentence(entry: FaqEntry) -> FaqEntry:
        sentence = sentences.get((entry.id, entry.language))
        space = " " if entry.language == "en" else ""
        return entry if sentence is None else msgspec.structs.replace(entry, answer=f"{entry.answer}{space}{sentence}")

    return [with_sentence(entry) for entry in entries]


def rounds_of(questions: Sequence[Question]) -> Iterator[list[Question]]:
    """Return the near misses with a sentence that would answer them, in rounds that have each entry once."""
    left = [question for question in questions if question.near is not None and question.tell is not None]
    while left:
        of_entry = {(question.near, question.language): question for question in reversed(left)}
        yield list(of_entry.values())
        left = [question for question in left if of_entry[question.near, question.language] is not question]
