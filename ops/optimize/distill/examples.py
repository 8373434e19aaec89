"""What a student is shown: a question with what its prompt holds, and the answer that is wanted.

A file of examples is JSON, one object a line (JSONL); the prompt is built as a worker builds it:

    {"question": "how long can I return it?", "answer": "You can return it within 30 days.",
     "grounding": [{"id": "return", "question": "How do I return an item?", "answer": "Within 30 days …"}],
     "turns": [{"user": "hi", "assistant": "Hello!"}]}

`grounding` and `turns` may be left out, `answer` too where a teacher is there to write it.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct

from shared.conversation.turn import Turn
from shared.errors import ProtocolError, SettingsError
from shared.settings import SYSTEM_PROMPT
from shared.wire.messages import Grounding
from workers.prompt.conversation import ChatTemplate, PromptBuilder
from workers.prompt.history_window import HistoryWindow

_MOST_TURNS = 5


class Said(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An earlier turn."""

    user: str
    assistant: str
    grounding: tuple[Grounding, ...] = ()


class Example(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of the file. `answer` is None where it is the teacher's to write."""

    question: str
    answer: str | None = None
    grounding: tuple[Grounding, ...] = ()
    turns: tuple[Said, ...] = ()


@dataclass(frozen=True, slots=True)
class Lesson:
    """An example in tokens: `ids[start:]` are the answer and the token that ends it."""

    ids: tuple[int, ...]
    start: int


class Encoder:
    """Examples → lessons, by the prompt that a worker with the default settings would build."""

    def __init__(self, template: ChatTemplate, *, system: str = SYSTEM_PROMPT) -> None:
        self._template = template
        self._prompts = PromptBuilder(template, system=system, window=HistoryWindow("sliding", _MOST_TURNS))

    def prompt(self, example: Example, *, max_tokens: int) -> list[int]:
        """Raises `ProtocolError` where the question alone is longer."""
        turns = [
            Turn(
                request_id=str(index),
                user=said.user,
                assistant=said.assistant,
                source="model",
                grounding=said.grounding,
            )
            for index, said in enumerate(example.turns)
        ]
        return self._prompts.build(
            turns=turns, grounding=example.grounding, question=example.question, max_tokens=max_tokens
        ).ids

    def lesson(self, example: Example, *, max_tokens: int) -> Lesson | None:
        """None where prompt and answer together are longer than `max_tokens`."""
        answer = (*self._template.encode(example.answer or ""), self._template.end[0])
        try:
            prompt = self.prompt(example, max_tokens=max_tokens - len(answer))
        except ProtocolError:
            return None
        return Lesson((*prompt, *answer), len(prompt))


def read_examples(path: Path, *, answered: bool) -> list[Example]:
    """Read a file of examples; with `answered` each must have an answer. Raises `SettingsError` that names the line."""
    examples = []
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise SettingsError(f"--targets {path}: {error.strerror or error}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            example = msgspec.json.decode(line, type=Example)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise SettingsError(f"--targets {path}, line {number}: {error}") from error
        if answered and not (example.answer or "").strip():
            raise SettingsError(f"--targets {path}, line {number}: no answer; write one, or give a --teacher")
        examples.append(example)
    if not examples:
        raise SettingsError(f"--targets {path}: holds no example")
    return examples


def digest(examples: Iterable[Example]) -> str:
    """The sha256, in hex, of what the student is shown, in order."""
    found = hashlib.sha256()
    for example in examples:
        found.update(msgspec.json.encode(example) + b"\n")
    return found.hexdigest()


def lessons_of(encoder: Encoder, examples: Sequence[Example], *, max_tokens: int) -> list[Lesson]:
    """Those that fit. Raises `SettingsError` where none does."""
    lessons = [encoder.lesson(example, max_tokens=max_tokens) for example in examples]
    fitting = [lesson for lesson in lessons if lesson is not None]
    if not fitting:
        raise SettingsError(f"--max-length {max_tokens}: no example fits; raise it")
    return fitting
