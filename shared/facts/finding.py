"""Find the facts in an English or Chinese text. Pure; takes time linear in the text's length for any text."""

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Final

from shared.facts import calendar, names
from shared.facts.fact import Fact
from shared.facts.numbers import DIGITS, ENGLISH, HAN, MAX_DIGITS, read_digits, read_english, read_han, scale_of
from shared.facts.units import CONNECTOR, PREFIX, PREFIXES, RANGE, UNIT, UNITS, Unit

_BEFORE_UNIT: Final = (
    r"(?:within|in|after|for|takes?|about|than|around|least|most|only|just|under|over|before|nearly|almost|to|costs?)"
)


def _one_of(patterns: Mapping[str, str]) -> str:
    return "|".join(f"(?P<{name}>{pattern})" for name, pattern in patterns.items())


# Alternatives with the same beginning share one lookahead for it.
_TOKENS: Final = "|".join(
    f"{start}(?:{_one_of(patterns)})"
    for start, patterns in {
        r"(?:\A|(?<=\n))(?=[ \t>*#•(\d-])": {
            "enumeration": r"[ \t>*#•-]{0,8}\(?(?P<rank>\d{1,2})[.)、:](?=[ \t]*[^\d\s])"
        },
        r"(?<![a-z0-9@._%+-])(?=[a-z0-9_%+-]*+[.@:])": {"mail": names.MAIL, "link": names.LINK},
        rf"(?=[\d(+{HAN}{calendar.TIME_STARTS}])": {
            "phone": names.PHONE,
            **calendar.DATES,
            **calendar.TIMES,
            "ordinal": r"(?<![\da-z.,])\d{1,4}(?:st|nd|rd|th)(?![a-z])",
            "fraction": r"(?<![\d/])\d{1,4}/\d{1,4}(?![\d/])",
            "digits": DIGITS,
            "share": rf"百分之(?:(?P<share_digits>{DIGITS})|(?P<share_han>[{HAN}]{{1,9}}))",
            "han": rf"[{HAN}]{{1,16}}",
        },
        r"(?=[周星礼第半])": {
            "weekday_han": calendar.HAN_WEEKDAY,
            "rank_han": rf"第[ ]?(?:\d+|[{HAN}]+)",
            "half_han": r"半(?=个?(?:月|小时|钟头|年|天))",
        },
        r"(?=[€$£¥￥人])": {"prefixed": rf"(?P<currency>{PREFIX})(?P<amount>{DIGITS})"},
        r"(?<![a-z0-9_-])(?=[a-z]{1,12}+(?:[-_][a-z]{1,12}+){0,2}+[-_ ]?\d)": {
            "prefixed_word": rf"(?P<currency_word>{PREFIX})(?P<amount_word>{DIGITS})",
            "step": r"(?:step|option)[ ]\d{1,2}(?![\d.,]\d|\d)",
            "code": names.CODE,
        },
        r"(?<![a-z0-9'])": {
            **calendar.DATE_WORDS,
            "half_word": r"half[ ]an?(?=[ ](?:hour|day|week|month|year)s?(?![a-z]))",
            "article": rf"{_BEFORE_UNIT}[ ]an?(?=[ ][a-z])",
            "words": rf"{ENGLISH}(?!-?(?:first|second|third|[a-z]{{2,6}}th)(?![a-z]))",
        },
    }.items()
)
TOKEN: Final = re.compile(_TOKENS)
"""A fact's pattern; the name of the matching group says which."""
OTHER: Final = re.compile(rf"(?s:(?:(?!{re.sub('[?]P<[a-z_0-9]+>', '?:', _TOKENS)})(?:[a-z]++[ ,;]*+|.))*+)")
"""Text in which no fact begins, one word at a time."""


# Replacements keep the length, so that offsets stay valid: full-width forms, unusual hyphens, quotes and spaces; lower
# case.
_PLAIN: Final = (
    {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F) if chr(code) not in "，；！？：～％"}
    | dict.fromkeys(map(ord, "\u2010\u2011\u2212\ufe63"), "-")
    | dict.fromkeys(map(ord, "\u2018\u2019"), "'")
    | dict.fromkeys(map(ord, "\u3000\u200b\u2060\ufeff`"), " ")
    | {ord("："): ":", ord("％"): "%", ord("～"): "~"}
)
_OTHER_DIGIT: Final = re.compile(r"(?![0-9])\d")  # Arabic, Devanagari, … ones
_LOWER: Final = {code: chr(code + 32) for code in range(ord("A"), ord("Z") + 1)}
_CLASSIFIERS: Final = frozenset("个件家次张条种位名笔款把双套份项步页部台倍颗瓶盒箱包批点")
# 一 is a number only if it counts something: not in 下一个, 同一天, 统一.
_NOT_BEFORE_ONE: Final = frozenset("下上另同某每任这那哪有第统唯之万其不逐单")
_TOGETHER: Final = frozenset("几数")
_WORDS_TOO: Final = frozenset("一零〇")  # 一个: a; 零件: parts
_MIN_COUNTING_RUN: Final = 5
_AND_A_HALF: Final = re.compile(r"[ ]and[ ]a[ ]half(?![a-z])")
_SCALE: Final = re.compile(r"[ ]?(?P<scale>(?:million|thousand|hundred|k)(?![a-z])|[百千万亿])")
_SHORT: Final = Decimal(3_600)  # "in a minute" is not a promise


_DIGITS: Final = re.compile(DIGITS)


@dataclass(slots=True)
class _Number:
    """A number before its unit is known. A `weak` one is a fact only with a unit: "one", 一."""

    value: Decimal
    start: int
    stop: int
    unit: Unit | None = None
    prefixed: bool = False
    weak: bool = False


_Found = Fact | _Number


def facts_in(text: str, *, opens: bool = True) -> tuple[Fact, ...]:
    """Return the facts in a text, in order.

    Not facts are ordinals ("first", 第一次), line numbers, "one" and 一 without a unit, and vague amounts
    ("a few", 几天).
    Numeric dates are read day first, or year first if that has four digits.

    Args:
        text: the text.
        opens: the text begins here, so that a leading "1." may number a line.
    """
    if not text.isascii():
        text = _OTHER_DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0])), text)
    plain = text.translate(_PLAIN).replace("**", "  ").replace("__", "  ")
    found = list(_Scan(plain.translate(_LOWER), plain, opens=opens))
    _share_units(found, plain)
    facts = [fact for each in found for fact in _finished(each)]
    return (*facts, *names.addresses_in(plain)) if facts else ()


class _Scan:
    """Scans a text once from left to right; each part is read as one thing only."""

    def __init__(self, text: str, original: str, *, opens: bool) -> None:
        self._text = text
        self._original = original
        self._opens = opens

    def __iter__(self) -> Iterator[_Found]:
        at = 0
        while (match := self._next(at)) is not None:
            name = match.lastgroup
            assert name is not None, "every alternative has a name"
            found = list(_READERS[name](self, match))
            if not found and (number := _DIGITS.search(self._text, match.start(), match.end())) is not None:
                match = number  # not a date or code after all, but its number is still one
                found = list(self.digits(number))
            at = max(match.end(), *(each.stop for each in found)) if found else match.end()
            yield from (each for each in found if each is not _SKIP)

    def _next(self, at: int) -> re.Match[str] | None:
        over = OTHER.match(self._text, at)
        assert over is not None, "it matches nothing, too"
        return TOKEN.match(self._text, over.end())

    def code(self, match: re.Match[str]) -> Iterator[_Found]:
        return names.read_code(match, self._original)

    def enumeration(self, match: re.Match[str]) -> Iterator[_Found]:
        inside = match.start() > 0 or self._text.startswith("\n")
        if inside or (self._opens and match["rank"] == "1"):
            yield _SKIP

    def prefixed(self, match: re.Match[str]) -> Iterator[_Found]:
        currency, amount = match["currency"] or match["currency_word"], match["amount"] or match["amount_word"]
        unit = UNITS[PREFIXES[currency.strip()]]
        for number in self._numbers(read_digits(amount), match):
            if number.unit is None or number.unit.kind not in _MONEY:
                number.unit, number.stop = unit, max(match.end(), number.stop if number.unit is None else match.end())
            number.prefixed = True
            yield number

    def digits(self, match: re.Match[str]) -> Iterator[_Found]:
        written = match[0]
        if written.isdecimal() and len(written) > MAX_DIGITS:
            yield Fact("digits", written, match.start(), match.end())
            return
        numbers = list(self._numbers(read_digits(written), match))
        after = self._text[match.end() : match.end() + 1]
        if numbers[-1].stop == match.end() and after.isascii() and after.isalpha():
            whole = names.ALNUM.match(self._text, match.start())
            assert whole is not None, "it begins with a digit"
            if after != "x" or not whole[0][len(written) + 1 :][:1].isdecimal():  # 120x60 is two numbers
                yield names.code_fact(whole[0], match.start())
                return
            numbers[-1].stop += 1
        yield from numbers

    def share(self, match: re.Match[str]) -> Iterator[_Found]:
        digits, han = match["share_digits"], match["share_han"]
        values = read_digits(digits) if digits else read_han(han)
        yield from (_Number(value, match.start(), match.end(), UNITS["%"]) for value in values[:1])

    def han(self, match: re.Match[str]) -> Iterator[_Found]:
        run, start = match[0], match.start()
        before, after = self._text[start - 1 : start], self._text[match.end() : match.end() + 1]
        if run == "一" and before in _NOT_BEFORE_ONE and before:
            return
        if before in _TOGETHER and before:
            return
        numbers = list(self._numbers(read_han(run), match))
        if not numbers or numbers[-1].unit is not None:
            yield from numbers
            return
        counting = after in _CLASSIFIERS and bool(after) and run not in _WORDS_TOO
        whole = len(run) > 1 and (any(char in "十百千万亿" for char in run) or len(run) >= _MIN_COUNTING_RUN)
        for number in numbers:
            number.weak = not (counting or whole)
            yield number

    def half(self, match: re.Match[str]) -> Iterator[_Found]:
        rest = match.end() + (self._text[match.end()] == "个" and self._text[match.end() + 1] != "月")
        yield from self._numbers([Decimal("0.5")], match, rest)

    def article(self, match: re.Match[str]) -> Iterator[_Found]:
        for number in self._numbers([Decimal(1)], match):
            if number.unit is not None and not (number.unit.kind == "duration" and number.unit.factor < _SHORT):
                yield number

    def words(self, match: re.Match[str]) -> Iterator[_Found]:
        for number in self._numbers([read_english(match[0])], match):
            number.weak = match[0] == "one"
            yield number

    def _numbers(self, values: list[Decimal], match: re.Match[str], at: int | None = None) -> Iterator[_Number]:
        """Yield the values; the last one with the multiplier and unit after it."""
        if not values:
            return
        *first, value = values
        stop = match.end() if at is None else at
        if (scale := _SCALE.match(self._text, stop)) is not None:
            value, stop = value * scale_of(scale["scale"]), scale.end()
        if (half := _AND_A_HALF.match(self._text, stop)) is not None:
            value, stop = value + Decimal("0.5"), half.end()
        behind = UNIT.match(self._text, stop)
        unit = None
        if behind is not None:
            unit, stop = UNITS[behind["latin"] or behind["other"]], behind.end()
            value += Decimal("0.5") if behind["half"] else 0
        together = match.lastgroup == "han"
        for each in first:
            yield _Number(each, match.start(), stop if together else match.end(), unit if together else None)
        yield _Number(value, match.start(), stop, unit)


_Read = Callable[[re.Match[str]], Iterator[_Found]]


def _reader(read: _Read) -> Callable[[_Scan, re.Match[str]], Iterator[_Found]]:
    """Return a reader that needs only the match."""
    return lambda _, match: read(match)


def _fraction(match: re.Match[str]) -> Iterator[Fact]:
    yield Fact("code", match[0], match.start(), match.end())


def _nothing(_: re.Match[str]) -> Iterator[Fact]:
    yield _SKIP


_READERS: Final[dict[str, Callable[[_Scan, re.Match[str]], Iterator[_Found]]]] = {
    "enumeration": _Scan.enumeration,
    "mail": _reader(names.read_mail),
    "link": _reader(names.read_link),
    "phone": _reader(names.read_phone),
    **dict.fromkeys((*calendar.DATES, *calendar.DATE_WORDS, "weekday_han"), _reader(calendar.read_date)),
    **dict.fromkeys(calendar.TIMES, _reader(calendar.read_time)),
    **dict.fromkeys(("ordinal", "rank_han", "step"), _reader(_nothing)),
    "fraction": _reader(_fraction),
    **dict.fromkeys(("prefixed", "prefixed_word"), _Scan.prefixed),
    "code": _Scan.code,
    "digits": _Scan.digits,
    "share": _Scan.share,
    "han": _Scan.han,
    **dict.fromkeys(("half_han", "half_word"), _Scan.half),
    "article": _Scan.article,
    "words": _Scan.words,
}
_SKIP: Final = Fact("", "", 0, 0)
_MONEY: Final = frozenset(PREFIXES.values())


def _share_units(found: list[_Found], text: str) -> None:
    """Share units between neighbours: "3–5 days" gives the first number the second's, "€10 to 250" the second the
    first's."""
    for left, right in zip(reversed(found[:-1]), reversed(found[1:]), strict=True):
        if isinstance(left, _Number) and isinstance(right, _Number) and left.unit is None and right.unit is not None:
            joined = CONNECTOR.fullmatch(text, left.stop, right.start)
            if (joined or left.stop > right.start - 1) and not right.prefixed:
                left.unit = right.unit
    for left, right in pairwise(found):
        if isinstance(left, _Number) and isinstance(right, _Number) and left.prefixed and right.unit is None:
            right.unit = left.unit if RANGE.fullmatch(text, left.stop, right.start) else None


def _finished(found: _Found) -> Iterator[Fact]:
    if isinstance(found, Fact):
        yield found
    elif found.unit is not None:
        yield Fact(found.unit.kind, found.unit.value(found.value), found.start, found.stop, (found.value,))
    elif not found.weak:
        yield Fact("number", found.value, found.start, found.stop, (found.value,))
