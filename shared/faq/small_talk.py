"""Recognise greetings, thanks, anger, a cry for help and the like by their words or signs alone; and the reply. Pure.

A text is small talk if nothing else is in it: "Hi, thanks! How do I return a lamp?" is a question, and is searched
without its courtesies. The reply is one fixed line, in the text's language: polite, short, and true of a machine.
`small_talk.json` holds the words as patterns, without apostrophes; the first kind that occurs is the one that is
answered: "ok thanks, bye" is a farewell.
"""

import re
import unicodedata
from pathlib import Path
from typing import Final, Literal

import msgspec

from shared.faq.terms import MAX_CHARS as MOST_SEARCHED_CHARS
from shared.faq.terms import detect_language
from shared.faq.words.fold import Plain, fold, plain
from shared.wire.messages import Language

MAX_CHARS: Final = 80
"""What is longer says something."""

Kind = Literal["who", "goodbye", "thanks", "urgent", "upset", "puzzled", "greeting", "noted"]
IN_NEED: Final[frozenset[Kind]] = frozenset(("urgent", "upset", "puzzled"))
"""A customer who writes this may need a person."""
_COURTEOUS: Final[frozenset[Kind | None]] = frozenset(("goodbye", "thanks", "urgent", "greeting"))


class _Around(msgspec.Struct, frozen=True):
    before: list[str]
    after: list[str]


class _Table(msgspec.Struct, frozen=True):
    """`fillers` may be between the words of any kind. `around` may be before and after a question without a mark
    between. `signs` are what a text without words says."""

    words: dict[Language, dict[Kind, list[str]]]
    fillers: dict[Language, list[str]]
    around: dict[Language, _Around]
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
_CLAUSE: Final = re.compile(r"[^.!?,;:~…\n。！？，；：、]*[.!?,;:~…\n。！？，；：、\s-]*")
_GAP: Final = r"[\s.!?,;:~…。！？，；：、-]"
_EDGES: Final = " \n,.!;:~…，。！；：、-"


def _around(side: Literal["before", "after"]) -> str:
    """Return a pattern of the courtesies on one side of a question, of both languages."""
    english, chinese = (
        "|".join([*getattr(_TABLE.around[language], side), *_TABLE.words[language]["thanks"]])
        for language in ("en", "zh")
    )
    return rf"(?:\b(?:{english})\b|{chinese})"


_BEFORE: Final = re.compile(rf"(?:{_around('before')}{_GAP}*+)++", re.IGNORECASE)
_AFTER: Final = re.compile(rf"(?:{_around('after')}{_GAP}*+)++$", re.IGNORECASE)
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
    drawn_out = [_DRAWN_OUT.sub(letters, said) for letters in (r"\1", r"\1\1")] if _DRAWN_OUT.search(said) else []
    for words in (said, *drawn_out):
        if is_pieces_only(words + _END[language], _PIECE[language]):
            return next((kind for kind, pattern in _KINDS[language].items() if pattern.search(words)), None)
    return None


def without_courtesies(text: str) -> Plain:
    """Return a message in plain characters without greetings, thanks and the like around its question, as the FAQ is
    searched with; one that says nothing else as it is, and so is a story, of which they are a small part."""
    text = plain(text)
    if len(text) > MOST_SEARCHED_CHARS:
        return text
    clauses = [clause for clause in _CLAUSE.findall(text) if clause]
    several = len(clauses) > 1
    asked = "".join(
        [clause for clause in clauses if small_talk(Plain(clause)) not in _COURTEOUS] if several else clauses
    )
    begun = _BEFORE.match(asked)
    asked = asked[begun.end() if begun else 0 :].rstrip(_EDGES)
    ended = _AFTER.search(asked)
    asked = asked[: ended.start() if ended else None].strip(_EDGES)
    if not any(map(str.isalnum, asked)) or (asked != text and not several and small_talk(text) in _COURTEOUS):
        return text
    return Plain(asked)


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
