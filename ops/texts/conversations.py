"""Conversations of the shop's customers, written for this project: half in English, half in Chinese. Pure but for
`load_conversations`.

The file holds what customers say; the answers come from the system that is measured. A turn may make sense only after
the one before it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from shared.errors import SettingsError
from shared.faq.terms import detect_language

Language = Literal["en", "zh"]

FILE: Final = Path(__file__).with_name("conversations.json")
FEWEST_TURNS: Final = 5
MOST_TURNS: Final = 7


class Conversation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`turns` are the customer's, in order."""

    id: str
    language: Language
    turns: tuple[str, ...]


def load_conversations(path: Path = FILE) -> tuple[Conversation, ...]:
    """Raises `SettingsError`, one line a fault."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from None
    return read_conversations(data, path.name)


def read_conversations(data: bytes, name: str) -> tuple[Conversation, ...]:
    """A JSON array of `{"id", "language", "turns"}`. Raises `SettingsError`, one line a fault, each with `name`."""
    try:
        conversations = msgspec.json.decode(data, type=tuple[Conversation, ...])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{name}: {error}") from None
    faults = [f"{name}: {fault}" for fault in _faults(conversations)]
    if faults:
        raise SettingsError("\n".join(faults))
    return conversations


def choose(conversations: Sequence[Conversation], count: int) -> list[Conversation]:
    """The first `count`, the languages taking turns. Raises `SettingsError` where there are not so many."""
    if count > len(conversations):
        raise SettingsError(f"--conversations {count}: there are {len(conversations)}; ask for at most so many")
    english = [one for one in conversations if one.language == "en"]
    chinese = [one for one in conversations if one.language == "zh"]
    both = min(len(english), len(chinese))
    pairs = [one for pair in zip(english, chinese, strict=False) for one in pair]
    return [*pairs, *english[both:], *chinese[both:]][:count]


def _faults(conversations: Sequence[Conversation]) -> list[str]:
    faults: list[str] = []
    ids: set[str] = set()
    first_said: dict[str, str] = {}
    for one in conversations:
        if one.id in ids:
            faults.append(f"{one.id}: that id is there twice; give each its own")
        ids.add(one.id)
        if not FEWEST_TURNS <= len(one.turns) <= MOST_TURNS:
            faults.append(f"{one.id}: {len(one.turns)} turns; write {FEWEST_TURNS} to {MOST_TURNS}")
        for turn in one.turns:
            if not turn.strip():
                faults.append(f"{one.id}: an empty turn; write what the customer says")
            elif (before := first_said.setdefault(turn, one.id)) != one.id or one.turns.count(turn) > 1:
                faults.append(f"{one.id}: {turn[:30]!r} is said in {before} too; write it in other words")
        if detect_language(" ".join(one.turns)) != one.language:
            faults.append(f"{one.id}: language is {one.language}, its turns are not")
    return faults
