"""Recognise greetings, thanks, anger, a cry for help and the like by their words or signs alone; and the reply. Pure.

A text is small talk if nothing else is in it: "Hi, thanks! How do I return a lamp?" is a question. The reply is one
fixed line, in the text's language: polite, short, and true of a machine. `small_talk.json` holds the words as patterns,
without apostrophes; the first kind that occurs is the one that is answered: "ok thanks, bye" is a farewell.
"""

import re
import unicodedata
from pathlib import Path
from typing import Final, Literal

import msgspec

from shared.faq import Language, detect_language
from shared.faq.words.fold import fold, plain

MAX_CHARS: Final = 80
"""What is longer says something."""

Kind = Literal["who", "goodbye", "thanks", "urgent", "upset", "puzzled", "greeting", "noted"]
IN_NEED: Final[frozenset[Kind]] = frozenset(("urgent", "upset", "puzzled"))
"""A customer who writes this may need a person."""


class _Table(msgspec.Struct, frozen=True):
    """`fillers` may stand around the words of any kind. `signs` are what a text without words says."""

    words: dict[Language, dict[Kind, list[str]]]
    fillers: dict[Language, list[str]]
    signs: dict[Kind, str]
    replies: dict[Kind, dict[Language, str]]


_TABLE: Final = msgspec.json.decode(Path(__file__).with_name("small_talk.json").read_bytes(), type=_Table)
_NO_LETTERS: Final = re.compile(r"[^\w]+|_+")
_END: Final[dict[Language, str]] = {"en": " ", "zh": ""}  # of a piece
_WORDS: Final = {
    language: {kind: "|".join(words) for kind, words in kinds.items()} for language, kinds in _TABLE.words.items()
}
_KINDS: Final[dict[Language, dict[Kind, re.Pattern[str]]]] = {
    "en": {kind: re.compile(rf"\b(?:{words})\b") for kind, words in _WORDS["en"].items()},
    "zh": {kind: re.compile(words) for kind, words in _WORDS["zh"].items()},
}
_PIECE: Final = {
    language: re.compile(f"(?:{'|'.join([*kinds.values(), *_TABLE.fillers[language]])}){_END[language]}")
    for language, kinds in _WORDS.items()
}
# Emoticons whose signs are letters or digits.
_EMOTICONS: Final = re.compile(
    r"(?:[:;=]'?-?[DdPp3OoSs]|D-?'?[:;=]|[Tt]_+[Tt]|<3+|\+1|.{0,2}\\_\(ツ\)_/.{0,2}|[\s!.])+"
)
_DRAWN_OUT: Final = re.compile(r"([a-z])\1{2,}")  # "hellooo", "thanksss"
_SIGNS: Final = {kind: re.compile(signs) for kind, signs in _TABLE.signs.items()}


def small_talk(text: str) -> Kind | None:
    """Return the kind of a text that is nothing but small talk; None where anything is asked."""
    text = plain(text)
    if len(text) > MAX_CHARS:
        return None
    folded = fold(text).replace("'", "")
    language = detect_language(text)
    said = _NO_LETTERS.sub("" if language == "zh" else " ", folded).strip()
    if not said or _EMOTICONS.fullmatch(text):
        return _meaning_of_signs(text)
    for words in (said, *(_DRAWN_OUT.sub(letters, said) for letters in (r"\1", r"\1\1"))):
        if is_pieces_only(words + _END[language], _PIECE[language]):
            return next((kind for kind, pattern in _KINDS[language].items() if pattern.search(words)), None)
    return None


def _meaning_of_signs(text: str) -> Kind | None:
    """Return what a text without words says: the first kind of sign found; unknown signs ask something."""
    if not text.strip():
        return None
    for kind, signs in _SIGNS.items():
        if signs.search(text):
            return kind
    return "noted" if any(unicodedata.category(char) == "So" for char in text) else "puzzled"


def is_pieces_only(words: str, piece: re.Pattern[str]) -> bool:
    """Return whether a text is pieces, one behind the other, and nothing else. Each place is begun once: a pattern of
    repeated pieces would try all the ways in which 哈哈哈哈 or 好的好的 can be cut, twice as many for each one more."""
    reached = {0}
    for start in range(len(words)):
        if start in reached and piece.match(words, start):
            reached |= {stop for stop in range(start + 1, len(words) + 1) if piece.fullmatch(words, start, stop)}
    return len(words) in reached


def courtesy(kind: Kind, language: Language) -> str:
    """Return the reply to small talk."""
    return _TABLE.replies[kind][language]
