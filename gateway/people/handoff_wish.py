"""Decide whether a customer clearly asks for a person, or accepts the offer of one, in English or Chinese. Pure.

The test is a list of phrasings (`wishes.json`), applied to one clause at a time. A customer who asks whether a person
packed the parcel, or does not want a person, gets the model's answer. A missed wish costs one more question, and there
is a button; a wrongly detected one costs an answer. So a doubtful wish is ignored.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, Self

import msgspec

from shared.faq.small_talk import is_pieces_only, small_talk, without_courtesies
from shared.faq.words.fold import fold, plain

MAX_CHARS: Final = 2_000
"""No wish is detected in a longer text."""

_MAX_PHRASE_CHARS: Final = 80
# Transcribed speech has no punctuation: "it has not come can I talk to a person".
_CLAUSES: Final = re.compile(
    r"[.!?;,:\n。！？；，、：…]+|\s(?:but|and|so|because)\s"
    r"|(?<!how)(?<!where)(?<!when)(?<!who)(?<!if)\s(?=(?:can|could|may) i\b)"
)
# "谢谢老板" asks for no person.
_ENDING: Final = ("thanks", "goodbye")
# "h u m a n", "a.g.e.n.t"
_SPACED: Final = re.compile(r"\b[a-z]([ .\-])(?:[a-z]\1){3,}[a-z]\b")
_DRAWN_OUT: Final = re.compile(r"([a-z])\1{2,}")  # "yesss"
_NO_WORD: Final = re.compile(r"[^\w']+|_+")
_PART: Final = re.compile(r"<(\w+)>")


class _Phrasings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The phrasings of one language.

    Attributes:
        end: follows each word
        mentions: matches at least once in each clause in which one of the `patterns` does
        patterns: wishes within a clause, made of named `parts`
        denials: a wish after one of these does not count
        no_denials: unless one of these comes before the wish too
        wishes: wishes that are whole clauses
        around: words that may surround them
        accepting: phrases that accept an offer
        agreeing: phrases that accept an offer unless the text also has `thanks`
    """

    end: str
    mentions: str
    parts: dict[str, str]
    patterns: list[str]
    denials: str
    no_denials: str
    wishes: list[str]
    around: list[str]
    accepting: list[str]
    agreeing: list[str]
    fillers: list[str]
    thanks: list[str]

    def expand(self, pattern: str) -> str:
        return _PART.sub(lambda part: self.expand(self.parts[part[1]]), pattern)


class _Table(msgspec.Struct, frozen=True):
    english: _Phrasings
    chinese: _Phrasings
    accepting_signs: str


_TABLE: Final = msgspec.json.decode(Path(__file__).with_name("wishes.json").read_bytes(), type=_Table)
_LANGUAGES: Final = (_TABLE.english, _TABLE.chinese)


@dataclass(frozen=True, slots=True)
class _Phrasing:
    """A text that has at least one of the `wanted` phrases and otherwise only phrases allowed around them."""

    pieces: re.Pattern[str]
    wanted: re.Pattern[str]
    end: str

    @classmethod
    def of(cls, end: str, wanted: Sequence[str], around: Sequence[str]) -> Self:
        phrases, others = (
            "|".join(sorted(map(re.escape, words), key=len, reverse=True)) for words in (wanted, [*wanted, *around])
        )
        begin = r"\b" if end else ""
        return cls(re.compile(f"(?:{others}){end}"), re.compile(f"{begin}(?:{phrases}){end}"), end)

    def fits(self, words: Sequence[str]) -> bool:
        text = _joined(words, self.end)
        if len(text) > _MAX_PHRASE_CHARS or not self.pieces.match(text):
            return False
        return is_pieces_only(text, self.pieces) and self.wanted.search(text) is not None


def _joined(words: Sequence[str], end: str) -> str:
    return "".join(f"{word}{end}" for word in words)


def _words_in(folded: str) -> list[str]:
    return [word for word in _NO_WORD.split(folded) if word]


_ACCEPTANCES: Final = [
    phrasing
    for said in _LANGUAGES
    for phrasing in (
        _Phrasing.of(said.end, said.accepting, said.agreeing + said.fillers + said.thanks),
        _Phrasing.of(said.end, said.agreeing, said.fillers),
    )
]


@lru_cache(4)
def _wishes(own: tuple[str, ...]) -> list[tuple[str, list[re.Pattern[str]], _Phrasing]]:
    """Return for each language the end of a word, its patterns (mentions and denials first) and its whole-clause
    wishes, including the shop's own."""
    wishes = []
    for said in _LANGUAGES:
        patterns = [
            re.compile(said.expand(each)) for each in (said.mentions, said.denials, said.no_denials, *said.patterns)
        ]
        listed = [*said.wishes, *filter(None, (said.end.join(_words_in(fold(wish))) for wish in own))]
        wishes.append((said.end, patterns, _Phrasing.of(said.end, listed, said.around)))
    return wishes


def wants_person(text: str, own: tuple[str, ...] = ()) -> bool:
    """Return whether a text explicitly asks for a person. `own` are the shop's additional phrasings, each a whole
    clause; polite words around them are ignored."""
    text = plain(text)
    if len(text) > MAX_CHARS:
        return False
    folded = _SPACED.sub(lambda word: word[0][::2], fold(without_courtesies(text)))
    clauses = [clause for clause in _CLAUSES.split(folded) if clause.strip()]
    wishes = (_is_wish(clause, end, patterns, listed) for clause in clauses for end, patterns, listed in _wishes(own))
    return any(wishes) and (small_talk(text) not in _ENDING or small_talk(clauses[0]) is None)


def accepts_offer(text: str) -> bool:
    """Return whether a text accepts the offer of a person before it: "yes please", "好的", a thumb. "Ok, thanks" does
    not: it ends the conversation."""
    text = plain(text)
    if words := _words_in(_DRAWN_OUT.sub(r"\1", fold(text))):
        return any(phrasing.fits(words) for phrasing in _ACCEPTANCES)
    return any(sign in _TABLE.accepting_signs for sign in text)


def _is_wish(clause: str, end: str, patterns: Sequence[re.Pattern[str]], listed: _Phrasing) -> bool:
    if not end and clause.isascii():
        return False
    if listed.fits(_words_in(clause)):
        return True
    mention, denial, no_denial, *wishes = patterns
    clause = end.join(_words_in(clause))
    for wish in wishes if mention.search(clause) else ():
        for found in wish.finditer(clause):
            before = clause[: found.start()]
            if not denial.search(before) or no_denial.search(before):
                return True
    return False
