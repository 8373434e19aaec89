"""Written dates and times of day: patterns over lower-case text, and their values. Pure."""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from shared.facts.fact import Fact
from shared.facts.numbers import HAN, read_han

_MONTH_NAMES: Final = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_MONTHS: Final = {name: number for number, full in enumerate(_MONTH_NAMES, 1) for name in (full, full[:3])} | {
    "sept": 9
}
_WEEKDAYS: Final = {name: number for number, name in enumerate(("mon", "tue", "wed", "thu", "fri", "sat", "sun"), 1)}
_HAN_WEEKDAYS: Final = {char: number for number, char in enumerate("一二三四五六日", 1)} | {"天": 7}
_ANY_MONTH: Final = "|".join(sorted(_MONTHS, key=len, reverse=True))
_YEAR: Final = r"(?:19|20)\d\d"
_ORDINAL: Final = r"(?:st|nd|rd|th)?"
_HAN_NUMBER: Final = rf"[{HAN}]{{1,3}}"
_IN_MONTH: Final = re.compile(
    r"(?:in|of|by|until|till|since|during|before|after|from|to|through|next|last|this|every|early|late)[ ]$"
)
_AMBIGUOUS_MONTHS: Final = ("may", "march", "mar", "sep", "jan", "jun")
_AFTERNOON: Final = ("下午", "傍晚", "晚上", "晚间", "晚")
_HALF_DAY: Final = 12
_DAY_MINUTES: Final = 1_440

DATES: Final = {
    "iso": rf"(?<![\d.])(?P<iso_year>{_YEAR})[-/.](?P<iso_month>\d{{1,2}})[-/.](?P<iso_day>\d{{1,2}})(?![\d/])",
    "numeric": rf"(?<![\d.])(?P<num_day>\d{{1,2}})[./](?P<num_month>\d{{1,2}})[./](?P<num_year>{_YEAR})(?!\d)",
    "chinese": rf"(?<![\d{HAN}个第])(?:(?P<han_year>{_YEAR})[ ]?年[ ]?)?(?P<han_month>\d{{1,2}}|{_HAN_NUMBER})[ ]?月"
    rf"(?:[ ]?(?P<han_day>\d{{1,2}}|{_HAN_NUMBER})[ ]?[日号])?",
    "year": rf"(?<!\d)(?P<year_alone>{_YEAR})[ ]?年",
    "british": rf"(?<![\d.,a-z])(?P<uk_day>\d{{1,2}}){_ORDINAL}(?:[ ]of)?[ ](?P<uk_month>{_ANY_MONTH})(?![a-z])"
    rf"(?:,?[ ](?P<uk_year>{_YEAR})(?![\d/-]))?",
}
"""Patterns that begin with a number."""
DATE_WORDS: Final = {
    "american": rf"(?P<us_month>{_ANY_MONTH})\.?[ ](?P<us_day>\d{{1,2}}){_ORDINAL}(?![\da-z%:]|[ ]%|[.,]\d)"
    rf"(?:,?[ ](?P<us_year>{_YEAR})(?![\d/-]))?",
    "month": rf"(?P<month_name>{_ANY_MONTH})(?![a-z'])",
    "weekday": r"(?P<day_name>mon|tue|wed|thu|fri|sat|sun)(?:(?:s|nes|rs|ur)?days?)(?![a-z])"
    r"|(?P<day_short>mon|tues?|wed|thu(?:rs?)?|fri)(?![a-z'])|(?<=[-–])(?P<day_last>sat|sun)(?![a-z])",
}
"""Patterns that begin with a word, without a letter before it."""
HAN_WEEKDAY: Final = r"(?:周|星期|礼拜)(?P<day_han>[一二三四五六日天])(?![次个件张条回遍共])"
TIMES: Final = {
    "clock": r"(?<![\d:.])(?P<hour>[01]?\d|2[0-4]):(?P<minute>[0-5]\d)(?![\d:])(?:[ ]?(?P<half>[ap])\.?m(?![a-z]))?",
    "twelve": r"(?<![\d:.,])(?P<hour12>1[0-2]|0?\d)(?:\.(?P<minute12>[0-5]\d))?[ ]?(?P<half12>[ap])\.?m(?![a-z])",
    "oclock": r"(?<![\d:.,])(?P<oclock_hour>\d{1,2})[ ]?o'?clock",
    "point": rf"(?P<part>上午|早上|早晨|凌晨|中午|{'|'.join(_AFTERNOON)})?[ ]?(?<![\d.{HAN}])"
    rf"(?P<point_hour>\d{{1,2}}|{_HAN_NUMBER})[ ]?点(?:(?P<point_half>半)"
    rf"|(?P<point_minute>\d{{1,2}}|{_HAN_NUMBER})分|(?P<sharp>整|钟))?(?![击评缀名数])",
}
"""Patterns that begin with a number or one of `TIME_STARTS`."""
TIME_STARTS: Final = "上早凌中下傍晚"


def read_date(match: re.Match[str]) -> Iterator[Fact]:
    """Yield the date in a match; nothing if it is not a date."""
    found = match.groupdict()
    for short in ("iso", "num", "uk", "us", "han"):
        if found[f"{short}_month"]:
            yield from _day_and_year(match, *(found[f"{short}_{part}"] for part in ("year", "month", "day")))
            return
    if found["year_alone"]:
        yield _fact(match, "number", Decimal(found["year_alone"]), int(found["year_alone"]))
    elif name := found["month_name"]:
        if name not in _AMBIGUOUS_MONTHS or _IN_MONTH.search(match.string, max(0, match.start() - 8), match.start()):
            yield _fact(match, "month", Decimal(_MONTHS[name]))
    elif char := found["day_han"]:
        yield _fact(match, "weekday", Decimal(_HAN_WEEKDAYS[char]))
    else:
        name = found["day_name"] or found["day_short"] or found["day_last"]
        yield _fact(match, "weekday", Decimal(_WEEKDAYS[name[:3]]))


def read_time(match: re.Match[str]) -> Iterator[Fact]:
    """Yield the time in a match of `TIMES`; nothing if it is not a time (一点: a bit)."""
    found = match.groupdict()
    if found["hour"]:
        yield _clock(match, int(found["hour"]), int(found["minute"]), found["half"])
    elif found["hour12"]:
        yield _clock(match, int(found["hour12"]), int(found["minute12"] or 0), found["half12"])
    elif found["oclock_hour"]:
        yield _oclock(match, int(found["oclock_hour"]), 0)
    else:
        yield from _point(match, found)


def _day_and_year(match: re.Match[str], year: str | None, month: str, day: str | None) -> Iterator[Fact]:
    number = _MONTHS.get(month) or _small(month)
    day_number = _small(day) if day else None
    if number is None or not 1 <= number <= 12 or not (day_number is None or 1 <= day_number <= 31):  # noqa: PLR2004
        return
    if day_number is None:
        yield _fact(match, "month", Decimal(number), number)
    else:
        yield _fact(match, "date", f"{number:02}-{day_number:02}", day_number)
    if year:
        yield _fact(match, "number", Decimal(year), int(year))


def _point(match: re.Match[str], found: dict[str, str | None]) -> Iterator[Fact]:
    hour = _small(found["point_hour"] or "")
    minute = 30 if found["point_half"] else _small(found["point_minute"] or "") or 0
    said_so = found["part"] or found["point_half"] or found["sharp"] or found["point_minute"]
    if hour is None or hour > 24 or (found["point_hour"] == "一" and not said_so):  # noqa: PLR2004
        return
    if found["part"]:
        later = found["part"] in _AFTERNOON and hour < _HALF_DAY
        yield _clock(match, hour + _HALF_DAY if later else hour, minute, None)
    elif hour > _HALF_DAY or hour == 0:
        yield _clock(match, hour, minute, None)
    else:
        yield _oclock(match, hour, minute)


def _clock(match: re.Match[str], hour: int, minute: int, half: str | None) -> Fact:
    if half is not None:
        hour = hour % _HALF_DAY + (_HALF_DAY if half == "p" else 0)
    # "8" may mean 8:00, but "30" never for 8:30.
    figures = (hour, hour % _HALF_DAY or _HALF_DAY) if minute == 0 else ()
    return _fact(match, "clock", Decimal((hour * 60 + minute) % _DAY_MINUTES), *figures)


def _oclock(match: re.Match[str], hour: int, minute: int) -> Fact:
    return _fact(match, "o'clock", Decimal((hour * 60 + minute) % (_DAY_MINUTES // 2)), hour)


def _small(written: str) -> int | None:
    if written.isdecimal():
        return int(written)
    values = read_han(written) if written else []
    return int(values[0]) if len(values) == 1 else None


def _fact(match: re.Match[str], kind: str, value: Decimal | str, *figures: int) -> Fact:
    return Fact(kind, value, match.start(), match.end(), tuple(map(Decimal, figures)))
