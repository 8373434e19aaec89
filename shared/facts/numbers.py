"""Written numbers: 49.90, 49,90, 1,500, fourteen, one hundred and fifty, 十四, 三四. Pure."""

import re
from decimal import Decimal
from typing import Final

MAX_DIGITS: Final = 15
"""A number with more digits is not an amount but a card number."""

_ONES: Final = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_TEENS: Final = (
    "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS: Final = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_WORDS: Final[dict[str, int]] = {
    "zero": 0,
    "a": 1,
    "an": 1,
    **{word: value for value, word in enumerate(_ONES, 1)},
    **{word: value for value, word in enumerate(_TEENS, 10)},
    **dict(zip(_TENS, range(20, 100, 10), strict=True)),
}
_SCALES: Final = {"dozen": 12, "hundred": 100, "thousand": 1_000, "million": 1_000_000}
_SMALL: Final = rf"(?:(?:{'|'.join(_TENS)})(?:[ -](?:{'|'.join(_ONES)}))?|{'|'.join((*_TEENS, *_ONES))}|zero)"
_PART: Final = rf"(?:(?:an?|{_SMALL})[ ](?:dozen|hundred)(?:(?:[ ]and)?[ ]{_SMALL})?|{_SMALL})"

ENGLISH: Final = rf"(?:(?:an?|{_PART})[ ](?:thousand|million)(?:(?:[ ]and)?[ ]{_PART})?|{_PART})(?![a-z])"
"""A number in words, in lower case. The caller checks the text before it."""

HAN: Final = "零〇一二两俩三四五六七八九十百千万亿"
_HAN_DIGITS: Final = {**{char: value for value, char in enumerate("零一二三四五六七八九")}, "〇": 0, "两": 2, "俩": 2}
_HAN_TENS: Final = {"十": 10, "百": 100, "千": 1_000}
_HAN_SCALES: Final = {"万": 10_000, "亿": 100_000_000}

DIGITS: Final = r"\d++(?:[.,'’\u00a0\u202f]\d++)*+"
_SEPARATOR: Final = re.compile(r"[.,'’\u00a0\u202f]")
_GROUP: Final = 3


def read_digits(written: str) -> list[Decimal]:
    """Return the numbers in a match of `DIGITS`; several for a list such as 1,2,3."""
    marks = _SEPARATOR.findall(written)
    if not marks:
        return [Decimal(written)]
    parts = _SEPARATOR.split(written)
    *whole, last = parts
    if len(set(marks)) == 1 and not (marks == ["."] or not _grouped(parts)):
        return [Decimal("".join(parts))]  # 1,500; 1.500.000
    decimal = marks[-1] in ".," and marks[-1] not in marks[:-1]
    if decimal and (len(whole) == 1 or (len(set(marks[:-1])) == 1 and _grouped(whole))):
        return [Decimal(f"{''.join(whole)}.{last}")]  # 49.90; 49,90; 1.500,00
    return [Decimal(part) for part in parts]


def _grouped(parts: list[str]) -> bool:
    """Return whether these are the groups of one number's thousands."""
    first, *others = parts
    return len(first) <= _GROUP and first[0] != "0" and all(len(part) == _GROUP for part in others)


def read_english(written: str) -> Decimal:
    """Return the number in a match of `ENGLISH`."""
    total = part = 0
    for word in re.split(r"[ -]", written):
        if word in ("thousand", "million"):
            total, part = total + part * _SCALES[word], 0
        elif word in _SCALES:
            part *= _SCALES[word]
        elif word != "and":
            part += _WORDS[word]
    return Decimal(total + part)


def read_han(run: str) -> list[Decimal]:
    """Return the value of a run of characters of `HAN`; two for 三四, none if it is not a number (千万, 万一)."""
    if all(char in _HAN_DIGITS for char in run):
        values = [_HAN_DIGITS[char] for char in run]
        two = len(values) == 2 and 0 not in values  # noqa: PLR2004 - 三四天: three or four
        if two:
            return [Decimal(value) for value in values] if values[0] < values[1] else []
        return [Decimal("".join(map(str, values)))]
    if run[0] in _HAN_SCALES or run[0] in "百千":
        return []
    total = part = digit = 0
    for char in run:
        if char in _HAN_DIGITS:
            digit = _HAN_DIGITS[char]
        elif char in _HAN_TENS:
            part += (digit or 1) * _HAN_TENS[char]
            digit = 0
        else:
            total = (total + part + digit) * _HAN_SCALES[char]
            part = digit = 0
    return [Decimal(total + part + digit)]


def scale_of(written: str) -> Decimal:
    """Return the factor of a word or character after digits: 3万, 2 million, 5k."""
    if written in ("k", "thousand"):
        return Decimal(1_000)
    if written in _SCALES:
        return Decimal(_SCALES[written])
    return Decimal({**_HAN_TENS, **_HAN_SCALES}[written])
