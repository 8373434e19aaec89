"""The questions that a system is judged by, each with what belongs in its answer, and how a file of them is read.

A file is JSON Lines in UTF-8, one question a line; the packaged one is of the packaged FAQ.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal, get_args

import msgspec
from msgspec import Meta

from ops.evaluation.judging.split import Split, split_of
from shared.conversation.turn import Turn
from shared.errors import SettingsError
from shared.faq import FaqEntry
from shared.wire.fields import Identifier, Text
from shared.wire.messages import Language

PACKAGED_QUESTIONS: Final = Path(__file__).with_name("questions.jsonl")
_APART_MS: Final = 10_000
Kind = Literal["paraphrase", "typo", "sku", "follow_up", "double", "small_talk", "unanswerable", "near_miss", "astray"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
# A fact in each of the spellings that a right answer may use.
Fact = Annotated[tuple[Text, ...], Meta(min_length=1)]


class Exchange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An earlier turn."""

    user: Text
    assistant: Text


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One question.

    Attributes:
        entries: The FAQ entries that answer it: each alone, or of a `double` all together; none where the FAQ cannot.
        must: The facts of a right answer; without any, one from one of `entries` is right.
        must_not: The spellings of what would be a wrong one.
        near: Of a near miss the entry that is close and does not answer it.
        tell: Of a near miss the sentence that would answer it if it were in that entry.
    """

    id: Identifier
    language: Language
    kind: Kind
    split: Split
    question: Text
    history: tuple[Exchange, ...] = ()
    entries: tuple[Identifier, ...] = ()
    must: tuple[Fact, ...] = ()
    must_not: tuple[Text, ...] = ()
    near: Identifier | None = None
    tell: Text | None = None

    @property
    def answerable(self) -> bool:
        """Return whether the FAQ has its answer."""
        return bool(self.entries)


def turns_of(question: Question, entries: Sequence[FaqEntry], *, name: str, asked_unix_ms: float) -> list[Turn]:
    """Return the turns before the question, the oldest first; `name` makes their ids. One whose answer is an FAQ
    entry's word for word came from that entry."""
    quoted = {entry.answer: entry.as_grounding() for entry in entries}
    return [
        Turn(
            request_id=f"{name}-{number}",
            user=turn.user,
            output_text=turn.assistant,
            source="faq" if turn.assistant in quoted else "model",
            asked_unix_ms=int(asked_unix_ms) - _APART_MS * (len(question.history) - number),
            grounding=(quoted[turn.assistant],) if turn.assistant in quoted else (),
        )
        for number, turn in enumerate(question.history)
    ]


def read_questions(path: Path, faq: Sequence[FaqEntry]) -> list[Question]:
    """Return the file's questions, in its order.

    Raises `SettingsError`, a line for each question that is wrong: not UTF-8, not JSON of that shape, an id twice, an
    entry that `faq` does not have in the question's language, of the packaged questions a split that is not its
    entries', facts without entries.
    """
    by_entry = path == PACKAGED_QUESTIONS
    known = {(entry.id, entry.language) for entry in faq}
    questions: dict[str, Question] = {}
    problems: list[str] = []
    for number, line in _lines(path):
        place = f"{path}:{number}"
        try:
            question = msgspec.json.decode(line, type=Question)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            problems.append(f"{place}: {error}")
            continue
        if question.id in questions:
            problems.append(f'{place}: the id "{question.id}" occurs twice; give one of them another')
        problems += [
            f'{place}: question "{question.id}" {wrong}' for wrong in _wrongs(question, known, by_entry=by_entry)
        ]
        questions[question.id] = question
    if problems and not questions:
        raise SettingsError(f"{problems[0]}; write one question as JSON in each line, as docs/evaluation.md shows")
    if problems:
        raise SettingsError("\n".join(problems))
    if not questions:
        raise SettingsError(f"{path}: holds no question")
    return list(questions.values())


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"questions {path}: {error.strerror or error}") from error
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise SettingsError(f"questions {path}: not UTF-8 at byte {error.start}; save it as UTF-8") from error
    return ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())


def _wrongs(question: Question, known: set[tuple[str, Language]], *, by_entry: bool) -> Iterator[str]:
    for entry in (*question.entries, *([question.near] if question.near is not None else [])):
        if (entry, question.language) not in known:
            yield f'names the entry "{entry}", which the FAQ does not have in {question.language}; correct it'
        elif by_entry and split_of(entry) != question.split:
            yield f'is of split "{question.split}", its entry "{entry}" of "{split_of(entry)}"; correct the split'
    if question.must and not question.entries:
        yield "has facts and no entry that bears them; name it in entries"
    if question.near is not None and question.entries:
        yield "has a near entry, and one that answers it; leave one of them out"
