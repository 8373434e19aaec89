"""How customers type: in haste, with slips, with a greeting or without. Pure."""

import random
from collections.abc import Callable
from typing import Final

_OPENINGS: Final = (
    "hi, ", "Hello, ", "Hey! ", "Good morning. ", "quick question: ", "Excuse me, ", "hi there, ", "Hello! ", "Sorry, ",
)  # fmt: skip
_CLOSINGS: Final = (" thanks", " please", " pls", " Thank you!", " thx", " It's urgent.", " Just asking.", " 🙂")
_ABOUT: Final = (
    "I have a question about this: {}",
    "What about {}?",
    "can you tell me about {}",
    "{}?",
    "{} ??",
    "how does it work with {}",
    "I need help: {}",
    "tell me: {}",
    "{} - what do I have to know?",
)
_SHORT_QUERY: Final = 7
_SLIPS: Final = 0.06


def typed(text: str, chance: random.Random) -> str:
    """`text` as somebody may have typed it: the same words, more or less, and every figure as it was."""
    words = text.split()
    if len(words) < _SHORT_QUERY and not text.endswith(("?", ".", "!")) and chance.random() < 0.35:  # noqa: PLR2004
        text = chance.choice(_ABOUT).format(text)
    if chance.random() < 0.2:  # noqa: PLR2004
        opening = chance.choice(_OPENINGS)
        text = opening + (text if text[:2] in {"I ", "I'"} else text[0].lower() + text[1:])
    if chance.random() < 0.12:  # noqa: PLR2004
        text += chance.choice(_CLOSINGS)
    style = chance.random()
    if style < 0.25:  # noqa: PLR2004
        text = " ".join(word if _has_figure(word) else word.lower() for word in text.split())
    if style < 0.15:  # noqa: PLR2004
        text = text.rstrip("?.! ")
    if chance.random() < 0.3:  # noqa: PLR2004
        text = " ".join(_slipped(word, chance) for word in text.split())
    return text


def _has_figure(word: str) -> bool:
    return any(character.isdigit() for character in word)


def _slipped(word: str, chance: random.Random) -> str:
    if len(word) < 4 or not word.isalpha() or chance.random() > 4 * _SLIPS:  # noqa: PLR2004
        return word
    at = chance.randrange(1, len(word) - 1)
    slips: tuple[Callable[[], str], ...] = (
        lambda: word[:at] + word[at + 1 :],
        lambda: word[:at] + word[at] + word[at:],
        lambda: word[:at] + word[at + 1] + word[at] + word[at + 2 :],
        lambda: word[:at] + chance.choice("etaoinsr") + word[at + 1 :],
    )
    return chance.choice(slips)()
