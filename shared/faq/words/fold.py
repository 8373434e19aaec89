"""Fold what customers type into the one form in which texts are compared. Pure.

Two texts that look alike become equal: full-width and other compatibility forms (NFKC), Traditional and Hong Kong
Chinese, invisible characters, HTML, letters of another script that pass for Latin ones, dashes and quotation marks. Of
a mail its own words count (`own_words`). FAQ files, searches, small talk, wishes for a person and embeddings all go
through here, so that none of them sees a form that another does not.
"""

import re
import unicodedata
from pathlib import Path
from typing import Final

import msgspec

from shared.faq.words.mail import own_words
from shared.faq.words.markup import without_markup

MAX_CHARS: Final = 8_000
"""More characters than the longest allowed question has in most languages. Reading them takes a few milliseconds."""


class Plain(str):
    """A text that `plain` has returned: it is not folded again."""

    __slots__ = ()


class _Chinese(msgspec.Struct, frozen=True):
    source: str
    traditional: str = msgspec.field(name="from")
    simplified: str = msgspec.field(name="to")
    phrases: dict[str, str]


_CHINESE: Final = msgspec.json.decode(Path(__file__).with_name("chinese.json").read_bytes(), type=_Chinese)
_SIGNS: Final = ("‐‑‒–—―−﹣’‘ʼ′＇ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ", "--------'''''abcdefghijklmnoprstuvwyz")
# Letters in brackets, circles and squares that NFKC leaves, or keeps the brackets of; the halves of flags.
_A_LETTER: Final = re.compile(r"(?:BRACKETED|CIRCLED|INDICATOR|PARENTHESIZED|SQUARED) (?:.* )?LETTER ([A-Z])")
_ENCLOSED: Final = {
    code: letter[1].lower()
    for code in (*range(0x2460, 0x2500), *range(0x1F100, 0x1F200))
    if (letter := _A_LETTER.search(unicodedata.name(chr(code), "")))
}
_HALVES: Final = re.compile("([\U0001f1e6-\U0001f1ff]{2,})")
# The regions of Unicode's flags: the second letters of each first one, from A on.
_REGIONS: Final = (
    "CDEFGILMOQRSTUWXZ ABDEFGHIJLMNOQRSTVWYZ ACDFGHIKLMNOPQRUVWXYZ EGJKMOZ ACEGHRSTU IJKMOR ABDEFGHILMNPQRSTUWY KMNRTU "
    "CDELMNOQRST EMOP EGHIMNPRWYZ ABCIKRSTUVY ACDEFGHKLMNOPQRSTUVWXYZ ACEFGILOPRUZ M AEFGHKLMNRSTWY A EOSUW "
    "ABCDEGHIJKLMNORSTVXYZ ACDFGHJKLMNORTVWZ AGMNSYZ ACEGINU FS K ET AMW"
)
_INDICATORS: Final = str.maketrans({chr(ord("A") + place): chr(0x1F1E6 + place) for place in range(26)})
_FLAGS: Final = re.compile(
    "(?:"
    + "|".join(
        f"{chr(0x1F1E6 + place)}[{seconds.translate(_INDICATORS)}]" for place, seconds in enumerate(_REGIONS.split())
    )
    + ")+"
)
# What NFKD leaves whole, such as a letter with a stroke or a hook.
_WITH_MORE: Final = re.compile("[ø\u0100-\u02af\u1d6c-\u1d9a\u2c60-\u2c7f\ua730-\ua7ff\uab30-\uab64]")
_LETTER_WITH: Final = re.compile(r"LATIN SMALL LETTER ([A-Z]) WITH .*")
_ALIKE: Final = str.maketrans(_CHINESE.traditional + _SIGNS[0], _CHINESE.simplified + _SIGNS[1])
# A phrase may end in what must not follow it: "点解(?![决释])".
_PHRASES: Final = {phrase.partition("(")[0]: name for phrase, name in _CHINESE.phrases.items()}
_PHRASE: Final = re.compile("|".join(sorted(_CHINESE.phrases, key=len, reverse=True)))

_NOTHING_TO_FOLD: Final = re.compile(r"[ -%'-;=?-~]*")
# Unicode's Default_Ignorable_Code_Point, the marks of annotations, and controls that break no line.
_IGNORABLE: Final = (
    "\u00ad\u034f\u061c\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"
)
INVISIBLE: Final = re.compile(f"[{_IGNORABLE}]")
# A word that is hyphenated at a line's end continues in the next line.
_DROPPED: Final = re.compile(f"\u00ad[ \t]*\r?\n[ \t]*|[{_IGNORABLE}]+")
# Ignorable too, but they take the room of a letter.
_BLANK: Final = re.compile("[\u115f\u1160\u2800\u3164\uffa0]")
_LINE_END: Final = re.compile("\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
# A pattern that begins with spaces is tried at each of them; two are as many to it.
_SPACES: Final = re.compile(r"[^\S\n]{3,}")
_MARK_BESIDE_HAN: Final = re.compile(r"(?<=[\u3400-\u9fff])[,?!:;()]+|[,?!:;()]+(?=[\u3400-\u9fff])")
_CHINESE_MARKS: Final = str.maketrans(",?!:;()", "，？！：；（）")
# "hasnt", "wheres", "ive", as phones type them. What is another word too stays: "its", "were", "id", "well".
_BARE_CONTRACTION: Final = re.compile(
    r"\b(?:((?:is|are|was|were|do|does|did|have|has|had|could|wo|would|should|must|need|ai)n|can)(t)"
    r"|(what|where|who|how|when|that|there|here|he|she|something|nothing)(s)"
    r"|(i|you|we|they)(ve)|(you|they)(re)|(you|they|it|that)(ll)|(you|they)(d))\b",
    re.IGNORECASE,
)
_ACCENTS: Final = re.compile(r"[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff]+")

# Letters that pass for Latin ones, in a word that has Latin letters too (a part of Unicode's confusables).
_PASSES_FOR_LATIN: Final = re.compile("[\u0370-\u058f\u13a0-\u13f5\u1400-\u167f\ua4d0-\ua4f7]")
_WORD: Final = re.compile(r"[^\W\d_]+")
_LATIN: Final = re.compile("[a-zA-Z]")
_LOOKALIKES: Final = str.maketrans(
    "АВЕЅІЈКМНОРСТУХҮԁаеһіјорсухԛѕԝгпкмтвнΑΒΕΖΗΙΚΜΝΟΡΤΥΧαερουνικχօսհոցᎪᎬᎷᏔᎻᏆᎢᏚᏢᏟᎳᎡᏦᏞᎠᏃᏴ"
    "ᗩᗷᑕᗪᖴᕼᒍᒪᗰᑎᑭᖇᔕᑌᐯᗯꓮꓐꓚꓓꓰꓝꓖꓧꓲꓙꓗꓡꓟꓠꓳꓑꓣꓢꓔꓴꓦꓪꓫꓬꓜ",
    "ABESIJKMHOPCTYXYdaehijopcyxqswrnkmtbhABEZHIKMNOPTYXaepouvikxouhngAEMWHITSPCWRKLDZB"
    "ABCDFHJLMNPRSUVWABCDEFGHIJKLMNOPRSTUVWXYZ",
)


def plain(text: str) -> Plain:
    """Return a message's own words in plain characters, with their case, accents and lines: what a search and an
    embedding read. Of a text of more than `MAX_CHARS` only its two ends are read: a client may send any text before its
    tokens are counted."""
    if isinstance(text, Plain):
        return text
    if len(text) > MAX_CHARS:
        text = f"{text[: MAX_CHARS // 2]}\n{text[-MAX_CHARS // 2 :]}"
    if _NOTHING_TO_FOLD.fullmatch(text):
        return Plain(_with_apostrophes(text))
    if "<" in text or "&" in text:
        text = without_markup(text)
    text = _SPACES.sub("  ", text)
    return _punctuated(own_words(_in_plain_characters(text)).strip())


def plain_entry(text: str) -> Plain:
    """Return the whole of a text of the FAQ in plain characters: what looks like a mail's signature is its own."""
    return _punctuated(_in_plain_characters(text))


def fold(text: str) -> str:
    """Return a message's own words in plain characters, in lower case and without accents."""
    text = plain(text)
    if text.isascii():
        return text.lower()
    return _WITH_MORE.sub(_bare, _ACCENTS.sub("", unicodedata.normalize("NFKD", text).casefold()))


def _bare(letter: re.Match[str]) -> str:
    """Return a letter without its stroke or hook; any other one unchanged."""
    named = _LETTER_WITH.fullmatch(unicodedata.name(letter[0], ""))
    return letter[0] if named is None else named[1].lower()


def _in_plain_characters(text: str) -> str:
    text = _LINE_END.sub("\n", text)
    if text.isascii() and not INVISIBLE.search(text):
        return text
    parts = _HALVES.split(text)  # every second one is halves of flags
    are_flags = all(map(_FLAGS.fullmatch, parts[1::2]))
    parts = [part if place % 2 and are_flags else part.translate(_ENCLOSED) for place, part in enumerate(parts)]
    text = _BLANK.sub(" ", _DROPPED.sub("", "".join(parts)))
    if not any(map(str.isalnum, text)):
        return text  # "？" says more than "?": which language is typed
    text = unicodedata.normalize("NFKC", text).translate(_ALIKE)
    text = _PHRASE.sub(lambda found: _PHRASES[found[0]], text)
    if not _PASSES_FOR_LATIN.search(text):
        return text
    mostly_latin = len(_LATIN.findall(text)) > len(_PASSES_FOR_LATIN.findall(text))
    return _WORD.sub(_as_latin if mostly_latin else _in_one_script, text)


def _punctuated(text: str) -> Plain:
    """Return a text with apostrophes in contractions, and with Chinese marks next to Chinese characters, as embeddings
    have learnt them."""
    text = _with_apostrophes(text)
    if text.isascii():
        return Plain(text)
    return Plain(_MARK_BESIDE_HAN.sub(lambda mark: mark[0].translate(_CHINESE_MARKS), text))


def _with_apostrophes(text: str) -> str:
    return _BARE_CONTRACTION.sub(_contracted, text)


def _contracted(word: re.Match[str]) -> str:
    return "'".join(filter(None, word.groups()))


def _as_latin(word: re.Match[str]) -> str:
    """Return a word that looks like a Latin one as that; a mixed one in one script."""
    latin = word[0].translate(_LOOKALIKES)
    return latin if latin.isascii() else _in_one_script(word)


def _in_one_script(word: re.Match[str]) -> str:
    return word[0].translate(_LOOKALIKES) if _LATIN.search(word[0]) else word[0]
