"""Decide whether a model goes round in circles: the same sentence again, or a few words over and over. Pure."""

import re
from collections import Counter
from typing import Final

_WORD: Final = re.compile(r"[a-z0-9]+|[^\W_]")
_LONG_BYTES: Final = 15
_SHORT_TIMES: Final = 3
_ROUNDS: Final = 3
_SINGLE_ROUNDS: Final = 6
_MAX_PERIOD: Final = 16


def wording(sentence: str) -> str:
    """Return a sentence by its letters and digits alone."""
    return "".join(_WORD.findall(sentence.lower()))


class Repetition:
    """Remembers an answer's sentences."""

    def __init__(self) -> None:
        self._times: Counter[str] = Counter()

    def again(self, sentence: str) -> bool:
        """Return whether that sentence was there before; a short one ("Yes.") may be, once."""
        words = wording(sentence)
        if not words:
            return False
        self._times[words] += 1
        return self._times[words] >= (2 if len(words.encode()) >= _LONG_BYTES else _SHORT_TIMES)


def goes_round(text: str) -> bool:
    """Return whether a few words come three times in a row or more. A single word may be said more often ("no, no,
    no")."""
    words = _WORD.findall(text.lower())
    if len(words) - len(set(words)) < 2:  # noqa: PLR2004 - two more rounds of one word, at the least
        return False
    for period in range(1, min(_MAX_PERIOD, len(words) // _ROUNDS) + 1):
        needed = period * (_ROUNDS - 1) if period > 1 else _SINGLE_ROUNDS - 1
        same = 0
        for word, before in zip(words[period:], words, strict=False):
            same = same + 1 if word == before else 0
            if same == needed:
                return True
    return False
