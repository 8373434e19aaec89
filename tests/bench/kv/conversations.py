"""Conversations of the shop's customers, written for this project: half in English, half in Chinese.

The file holds what customers say; the answers come from the system that is measured. A turn may make sense only after
the one before it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from shared.errors import SettingsError


class Conversation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`turns` are the customer's, in order."""

    id: str
    language: Literal["en", "zh"]
    turns: tuple[str, ...]


def load_conversations() -> tuple[Conversation, ...]:
    data = Path(__file__).with_name("conversations.json").read_bytes()
    return msgspec.json.decode(data, type=tuple[Conversation, ...])


def choose(conversations: Sequence[Conversation], count: int) -> list[Conversation]:
    """Return the first `count`, the languages taking turns. Raises `SettingsError` where there are not so many."""
    if count > len(conversations):
        raise SettingsError(f"--conversations {count}: there are {len(conversations)}; ask for at most so many")
    english = [one for one in conversations if one.language == "en"]
    chinese = [one for one in conversations if one.language == "zh"]
    both = min(len(english), len(chinese))
    pairs = [one for pair in zip(english, chinese, strict=False) for one in pair]
    return [*pairs, *english[both:], *chinese[both:]][:count]
