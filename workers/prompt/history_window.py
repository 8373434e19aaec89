"""How far back a prompt looks. Pure: the turns in, the first that stands in the prompt out.

KV serves the next prompt as far as that begins with the same tokens, so what matters is how often the first turn
changes. *Sliding* holds the last turns, always: once they are as many as it may hold, each question changes it.
*Strides* lets the window grow to as many and then drops half of them, so that it stays for several questions.

Where a window began is written in its last turn (`Turn.window_start`). A count of the conversation's turns would do as
well only while nobody forgets any: history is bounded, and Redis may have been away.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from shared.conversation.turn import Turn


@dataclass(frozen=True, slots=True)
class HistoryWindow:
    """At most `most` turns, never a part of one."""

    kind: Literal["sliding", "strides"]
    most: int

    def start(self, turns: Sequence[Turn]) -> int:
        """Index of the first of a conversation's turns, oldest first, that the next prompt holds."""
        if self.kind == "sliding":
            return max(0, len(turns) - self.most)
        begun = _begun(turns)
        if begun is not None and len(turns) - begun <= self.most:
            return begun
        return max(0, len(turns) - (self.most + 1) // 2)

    def recalls(self, turns: Sequence[Turn], start: int) -> bool:
        """Whether earlier questions keep their FAQ entries in a prompt from `start`: where they stand in the slot, or
        will for the next prompt. One that neither extends another nor is extended is shorter without them."""
        return self.kind == "strides" or start == _begun(turns)

    def later(self, start: int, num_turns: int) -> int:
        """Where it is to start instead, if a prompt from `start < num_turns` is too long."""
        return start + 1 if self.kind == "sliding" else num_turns - (num_turns - start) // 2


def _begun(turns: Sequence[Turn]) -> int | None:
    """Where the last prompt began, as far as anybody has written it down; None where that turn is not there."""
    first = next((turn.window_start for turn in reversed(turns) if turn.window_start is not None), None)
    if first is None:
        return 0
    return next((at for at, turn in enumerate(turns) if turn.request_id == first), None)
