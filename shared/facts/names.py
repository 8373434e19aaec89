"""Names that must match to the letter: links, mail addresses, codes, telephone numbers, addresses. Pure."""

import re
from collections.abc import Iterator
from typing import Final

from shared.facts.fact import Fact

# Without a scheme or "www." a name is a link if it has one of these endings. Endings that are English words (it, me,
# no, so) are excluded: "order.No" is a missing space.
_ENDS: Final = (
    "com|org|net|edu|gov|info|biz|app|dev|shop|store|online|site|cloud|email|support|example|eu|uk|de|fr|nl|pl|ch|"
    "se|dk|es|pt|cz|cn|hk|tw|jp|kr|ca|au|nz|br|ru|io|ai|co"
)
_LINK_CHARS: Final = r"[!#-&(-;=?-~]"
_TRAILING: Final = ".,;:!?)]}*_"
_SEPARATORS: Final = re.compile(r"[-_ ]")
_NO_DIGITS: Final = re.compile(r"\D+")
_MIN_PHONE_DIGITS: Final = 7
_PLAIN_WORD: Final = re.compile(r"[a-z]{3,}[-_]\d+(?![a-z0-9])")

MAIL: Final = r"[a-z0-9._%+-]{1,64}+@[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){1,5}"
LINK: Final = (
    rf"(?:https?://|www\.){_LINK_CHARS}{{1,400}}+"
    rf"|(?:[a-z0-9-]{{1,63}}+\.){{1,4}}(?:{_ENDS})(?![a-z0-9-])(?:/{_LINK_CHARS}{{0,400}})?"
)
PHONE: Final = (
    r"(?<![\w+.,:/-])(?:(?:\+|00?)(?:\d[ ()/.-]{0,2}){6,15}\d|\(0\d{1,5}\)[ ]?\d[\d ]{4,10}\d"
    r"|\d{3}[- ]\d{3,4}[- ]\d{4}|\d{4}(?:[ -]\d{4}){2,4})(?![\w-])"
)
CODE: Final = (
    r"[a-z]{1,12}+(?:[-_][a-z]{1,12}+){0,2}+[-_]?\d[a-z0-9]{0,40}+(?:[-_][a-z0-9]{1,20}+){0,6}+"
    r"|[a-z]{2,3}+[ ]\d{3,5}(?:[ ][a-z](?![a-z0-9]))?(?![a-z0-9])"
)
ALNUM: Final = re.compile(r"[a-z0-9]{1,40}+(?:[-_][a-z0-9]{1,20}+){0,6}+")

_STREET: Final = re.compile(
    r"\b\d{1,4}[a-zA-Z]?[ ](?:[A-Z][a-z'’]{1,20}[ ]){1,3}(?:Street|St|Road|Rd|Avenue|Ave|Lane|Square|Boulevard|Blvd"
    r"|Drive|Court)\b"
    r"|\b[A-ZÄÖÜ][a-zäöüß]{1,20}(?:straße|strasse|str\.|allee|platz|weg|gasse)[ ]\d{1,4}[a-z]?\b"
    r"|[\u4e00-\u9fff]{2}(?:路|街|大道|巷|弄)[ ]?\d{1,5}[ ]?号"
)


def read_mail(match: re.Match[str]) -> Iterator[Fact]:
    yield Fact("mail", match[0].rstrip("."), match.start(), match.end())


def read_link(match: re.Match[str]) -> Iterator[Fact]:
    value = match[0].rstrip(_TRAILING)
    for start in ("https://", "http://", "www."):
        value = value.removeprefix(start)
    if value:
        yield Fact("link", value.rstrip("/"), match.start(), match.end())


def read_phone(match: re.Match[str]) -> Iterator[Fact]:
    digits = _NO_DIGITS.sub("", match[0])
    if len(digits) >= _MIN_PHONE_DIGITS:
        yield Fact("digits", digits.lstrip("0"), match.start(), match.end())


def read_code(match: re.Match[str], original: str) -> Iterator[Fact]:
    """Yield the code in a match; nothing for a word before a number: "mid-2026", "over 9000"."""
    written = original[match.start() : match.end()]
    if _PLAIN_WORD.fullmatch(written) or (" " in written and not written.isupper()):
        return
    yield code_fact(written, match.start())


def code_fact(written: str, start: int) -> Fact:
    return Fact("code", _SEPARATORS.sub("", written).lower(), start, start + len(written))


def addresses_in(text: str) -> Iterator[Fact]:
    """Yield streets with a house number. `text` must have its original case."""
    for match in _STREET.finditer(text):
        value = "".join(char for char in match[0].casefold() if char.isalnum())
        yield Fact("address", value, match.start(), match.end())
