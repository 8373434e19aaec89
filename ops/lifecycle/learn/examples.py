"""The examples from which a student model learns.

A file of examples is JSON Lines, one object per line. `grounding` and `turns` are optional; so is `answer` if a teacher
writes it:

    {"question": "how long can I return it?", "answer": "You can return it within 30 days.",
     "grounding": [{"id": "return", "question": "How do I return an item?", "answer": "Within 30 days …"}],
     "turns": [{"user": "hi", "assistant": "Hello!"}]}
"""

from msgspec import Struct

from shared.wire.outcome import Grounding


class Said(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An earlier turn."""

    user: str
    assistant: str
    grounding: tuple[Grounding, ...] = ()


class Example(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of the file. `answer` is None if the teacher writes it."""

    question: str
    answer: str | None = None
    grounding: tuple[Grounding, ...] = ()
    turns: tuple[Said, ...] = ()
