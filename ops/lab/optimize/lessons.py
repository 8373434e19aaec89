"""Read and make the examples from which a student model learns, and encode them as a worker would."""

from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from ops.evaluation.judging.split import Split, split_of
from ops.lifecycle.learn.examples import Example
from shared.conversation.turn import Turn
from shared.errors import ProtocolError, SettingsError
from shared.faq.entries import PACKAGED_PATH, read_entries
from shared.model.chat_template import ChatTemplate
from shared.settings import SYSTEM_PROMPT
from workers.prompt.conversation import PromptBuilder

_MOST_TURNS = 5


class Lesson(Struct, frozen=True):
    """An example in tokens. `ids[start:]` are the answer and the token that ends it."""

    ids: tuple[int, ...]
    start: int


class Encoder:
    """Encodes examples with the prompt that a worker with default settings would build."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self._prompts = PromptBuilder(template, system=SYSTEM_PROMPT, most_turns=_MOST_TURNS)

    def prompt(self, example: Example, *, max_tokens: int) -> list[int]:
        """Return the prompt's tokens. Raises `ProtocolError` if the question alone is too long."""
        turns = [
            Turn(request_id=str(at), user=one.user, output_text=one.assistant, source="model", grounding=one.grounding)
            for at, one in enumerate(example.turns)
        ]
        prompt = self._prompts.build(
            turns=turns, grounding=example.grounding, question=example.question, max_tokens=max_tokens
        )
        return list(prompt.ids)

    def lessons(self, examples: Iterable[Example], *, max_tokens: int) -> list[Lesson]:
        """Return the lessons of the examples whose prompt and answer fit."""
        lessons = []
        for example in examples:
            answer = (*self._template.encode(example.answer or ""), self._template.end[0])
            try:
                prompt = self.prompt(example, max_tokens=max_tokens - len(answer))
            except ProtocolError:
                continue
            lessons.append(Lesson((*prompt, *answer), len(prompt)))
        return lessons


def faq_examples(split: Split) -> list[Example]:
    """Return an example for every phrasing of the English entries in one half of the packaged FAQ, answered with its
    entry's text.

    The grounding also has another entry of that half, before or after, so that the student learns to choose.
    """
    entries = [entry for entry in read_entries(PACKAGED_PATH) if entry.language == "en" and split_of(entry.id) == split]
    examples = []
    for at, entry in enumerate(entries):
        for step, wording in enumerate((entry.question, *entry.alternatives), 1):
            pair = (entry.as_grounding(), entries[(at + step) % len(entries)].as_grounding())
            grounding = pair if step % 2 else pair[::-1]
            examples.append(Example(question=wording, answer=entry.answer, grounding=grounding))
    return examples


def read_examples(path: Path, *, answered: bool) -> list[Example]:
    """Read a file of examples. With `answered` each must have an answer. Raises `SettingsError` with the line's
    number."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise SettingsError(f"--targets {path}: {error.strerror or error}") from error
    examples = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            example = msgspec.json.decode(line, type=Example)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise SettingsError(f"--targets {path}, line {number}: {error}") from error
        if answered and not (example.answer or "").strip():
            raise SettingsError(f"--targets {path}, line {number}: no answer; write one, or use a --teacher")
        examples.append(example)
    if not examples:
        raise SettingsError(f"--targets {path}: has no examples")
    return examples
