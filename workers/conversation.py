"""The prompt: system text and FAQ entries, the last turns, the question; as the model's chat template wants it.

What customers, the FAQ and the model have written is encoded as plain text: a delimiter such as `<|im_start|>` in it
becomes ordinary tokens and cannot open a role.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shared.errors import ProtocolError
from shared.messages import Grounding


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """ChatML: `<|im_start|>role\\ntext<|im_end|>\\n`. `encode` must not parse special tokens."""

    start_id: int
    end_id: int
    encode: Callable[[str], list[int]]

    def message(self, role: str, text: str) -> list[int]:
        return [self.start_id, *self.encode(f"{role}\n{text}"), self.end_id, *self.encode("\n")]

    def opening(self, role: str) -> list[int]:
        """The beginning of the message that the model is to write."""
        return [self.start_id, *self.encode(f"{role}\n")]


def build_prompt(
    template: ChatTemplate,
    *,
    system: str,
    grounding: Sequence[Grounding],
    turns: Sequence[tuple[str, str]],
    question: str,
    max_tokens: int,
) -> list[int]:
    """Token ids, at most `max_tokens`: the oldest turns give way first, then the lowest-ranked FAQ entries.

    Raises `ProtocolError` (`input_too_long`) where the question alone does not fit.
    """
    asked = [*template.message("user", question), *template.opening("assistant")]
    entries = list(grounding)
    opening = _opening(template, system, entries)
    while len(opening) + len(asked) > max_tokens:
        if not entries:
            raise ProtocolError(
                "input_too_long",
                f"the question and the system prompt take {len(opening) + len(asked)} tokens, "
                f"the slot leaves {max_tokens}; shorten it",
                param="input",
            )
        entries.pop()
        opening = _opening(template, system, entries)
    room = max_tokens - len(opening) - len(asked)
    middle: list[int] = []
    for user, assistant in reversed(turns):
        turn = [*template.message("user", user), *template.message("assistant", assistant)]
        if len(turn) + len(middle) > room:
            break
        middle = turn + middle
    return opening + middle + asked


def _opening(template: ChatTemplate, system: str, entries: Sequence[Grounding]) -> list[int]:
    parts = [system] if system else []
    parts += [f"Q: {entry.question}\nA: {entry.answer}" for entry in entries]
    return template.message("system", "\n\n".join(parts)) if parts else []
