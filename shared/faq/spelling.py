"""The word that a misspelt one was meant to be, out of the words that the index knows. Pure.

Two words one edit apart (a letter added, dropped, replaced, or swapped with its neighbour) become equal when at most
one letter is left out of each, so a table of the known words' shortened forms finds the candidates without a scan; this
is the symmetric delete idea (W. Garbe, SymSpell).
"""

from collections.abc import Mapping
from typing import Final

# Shorter words have too many neighbours: "sing" is not a slip of "sign".
MIN_LETTERS: Final = 5


class Spelling:
    """Knows words, each with the number of entries that use it."""

    def __init__(self, frequencies: Mapping[str, int]) -> None:
        self._frequencies = frequencies
        self._by_shortened: dict[str, list[str]] = {}
        for word in frequencies:
            # A known word may be one letter shorter than the shortest slip that is mended.
            if _is_plain(word) and len(word) >= MIN_LETTERS - 1:
                for shortened in _shortened(word):
                    self._by_shortened.setdefault(shortened, []).append(word)

    def nearest(self, word: str) -> str | None:
        """Return the most frequent known word one edit away that starts with the same letter; None where there is
        none."""
        if len(word) < MIN_LETTERS or not _is_plain(word):
            return None
        candidates = {
            known
            for shortened in _shortened(word)
            for known in self._by_shortened.get(shortened, ())
            if known[0] == word[0] and _is_one_edit(word, known)
        }
        return min(candidates, key=lambda known: (-self._frequencies[known], known), default=None)


def _is_plain(word: str) -> bool:
    return word.isascii() and word.isalpha()


def _shortened(word: str) -> set[str]:
    return {word, *(word[:at] + word[at + 1 :] for at in range(len(word)))}


def _is_one_edit(typed: str, known: str) -> bool:
    at = 0
    while at < min(len(typed), len(known)) and typed[at] == known[at]:
        at += 1
    left, right = typed[at:], known[at:]
    swapped = left[:2] == right[:2][::-1] and left[2:] == right[2:]
    return left[1:] == right[1:] or left[1:] == right or left == right[1:] or swapped
