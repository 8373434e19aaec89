"""Decide how much of a text goes into a prompt. Pure."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class PromptBudget:
    """Tokens, at most: of one FAQ entry; and of the earlier turns, with the entries that stand between them. None: what
    the slot leaves."""

    entry_tokens: int | None = None
    history_tokens: int | None = None


_SENTENCES: Final = re.compile(r".*?(?:[.!?](?=\s)|[。！？]|\n|$)", re.DOTALL)
# No token of a text is longer: what is longer by this cannot fit, and need not be counted.
_MAX_CHARS_PER_TOKEN: Final = 64


def whole_sentences(text: str, max_tokens: int, count: Callable[[str], int]) -> str:
    """Return the first sentences of a text that fit, or if none does its first words: never a part of one, as half of
    "100 days" would be wrong."""
    if len(text) <= max_tokens or count(text) <= max_tokens:
        return text
    text = text[: max_tokens * _MAX_CHARS_PER_TOKEN]
    ends = [found.end() for found in _SENTENCES.finditer(text) if found.end() < len(text)]
    return _longest(text, ends, max_tokens, count) or _longest(
        text, [found.start() for found in re.finditer(r"\s|(?<=[，、；])", text)], max_tokens, count
    )


def _longest(text: str, ends: list[int], max_tokens: int, count: Callable[[str], int]) -> str:
    """Return the longest beginning that ends at one of these places and fits; by halves, for counting takes its
    time."""
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high) // 2
        if count(text[: ends[middle]].rstrip()) <= max_tokens:
            low = middle + 1
        else:
            high = middle
    return text[: ends[low - 1]].rstrip() if low else ""
