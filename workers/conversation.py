"""The prompt: system text and FAQ entries, the last turns, the question; as the model's chat template wants it.

What customers, the FAQ and the model have written is encoded as plain text: a delimiter such as `<|im_start|>` in it
becomes ordinary tokens and cannot open a role.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

from shared.errors import ProtocolError
from shared.messages import Grounding

_REMEMBERED_OPENINGS = 512
_REMEMBERED_TURNS = 1_024


class ChatTemplate:
    """ChatML: `<|im_start|>role\\ntext<|im_end|>\\n`. `encode` must not parse special tokens."""

    def __init__(self, *, start_id: int, end_id: int, encode: Callable[[str], list[int]]) -> None:
        self._start_id = start_id
        self._encode = encode
        self._end = [end_id, *encode("\n")]
        self.answer = (start_id, *encode("assistant\n"))
        """The beginning of the message that the model is to write."""

    def message(self, role: str, text: str) -> list[int]:
        return [self._start_id, *self._encode(f"{role}\n{text}"), *self._end]


class PromptBuilder:
    """Prompts with one system text. What is in many prompts is encoded once: the opening for each set of FAQ entries
    (few sets are asked for often), a turn for the questions after it. The caches are bounded, in memory only."""

    def __init__(self, template: ChatTemplate, *, system: str) -> None:
        self._template = template
        self._system = system
        self._opening = lru_cache(_REMEMBERED_OPENINGS)(self._encode_opening)
        self._turn = lru_cache(_REMEMBERED_TURNS)(self._encode_turn)

    def build(
        self, *, grounding: Sequence[Grounding], turns: Sequence[tuple[str, str]], question: str, max_tokens: int
    ) -> list[int]:
        """Token ids, at most `max_tokens`: the oldest turns give way first, then the lowest-ranked FAQ entries.

        Raises `ProtocolError` (`input_too_long`) where the question alone does not fit.
        """
        asked = [*self._template.message("user", question), *self._template.answer]
        entries = tuple(grounding)
        opening = self._opening(entries)
        while len(opening) + len(asked) > max_tokens:
            if not entries:
                raise ProtocolError(
                    "input_too_long",
                    f"the question and the system prompt take {len(opening) + len(asked)} tokens, "
                    f"the slot leaves {max_tokens}; shorten it",
                    param="input",
                )
            entries = entries[:-1]
            opening = self._opening(entries)
        return [*opening, *self._last_turns(turns, max_tokens - len(opening) - len(asked)), *asked]

    def _last_turns(self, turns: Sequence[tuple[str, str]], room: int) -> list[int]:
        """As many of the last turns as fit, each whole."""
        ids: list[int] = []
        for user, assistant in reversed(turns):
            turn = self._turn(user, assistant)
            if len(turn) + len(ids) > room:
                break
            ids = [*turn, *ids]
        return ids

    def _encode_turn(self, user: str, assistant: str) -> tuple[int, ...]:
        return (*self._template.message("user", user), *self._template.message("assistant", assistant))

    def _encode_opening(self, entries: tuple[Grounding, ...]) -> tuple[int, ...]:
        parts = [self._system] if self._system else []
        parts += [f"Q: {entry.question}\nA: {entry.answer}" for entry in entries]
        return tuple(self._template.message("system", "\n\n".join(parts))) if parts else ()
