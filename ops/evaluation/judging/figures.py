"""Find the parts of an answer that can be checked exactly: amounts, periods, dates, measures, SKUs, links, addresses.

Pure. This code is separate from the fact guard, so that the guard does not judge itself.
"""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from ops.evaluation.judging.spelling import normal

_LINK: Final = re.compile(
    r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+|(?:https?://|www\.)[^\s)>\]\"'，。]+"
    r"|(?<![\w.-])[a-z0-9-]+\.(?:com|org|net|info|shop|store|example|eu|de|uk|cn)\b(?:/[^\s)>\]\"'，。]*)?"
)
_SKU: Final = re.compile(r"(?<![a-z0-9])([a-z]{2})[- ]?(\d{4})(?:[- ]?([a-z]))?(?![a-z0-9])")
_LIST_MARK: Final = re.compile(r"^\s*(?:\d{1,2}[.)、]|[-*•])\s+", re.MULTILINE)

_MONTHS: Final = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
# A unit's own name, and what it is in the smallest one of its family.
_UNITS: Final[dict[str, tuple[str, float]]] = {
    "minute": ("minute", 1), "分钟": ("minute", 1), "hour": ("minute", 60), "小时": ("minute", 60),
    "个小时": ("minute", 60), "day": ("minute", 1_440), "天": ("minute", 1_440), "week": ("minute", 10_080),
    "周": ("minute", 10_080), "星期": ("minute", 10_080), "个星期": ("minute", 10_080),
    "month": ("month", 1), "个月": ("month", 1), "year": ("month", 12), "年": ("month", 12),
    "working day": ("working day", 1), "个工作日": ("working day", 1), "工作日": ("working day", 1),
    "night": ("night", 1), "晚": ("night", 1), "eur": ("eur", 1), "usd": ("usd", 1), "gbp": ("gbp", 1),
    "pound": ("gbp", 1), "dollar": ("usd", 1), "%": ("%", 1), "kg": ("kg", 1), "cm": ("cm", 1), "厘米": ("cm", 1),
    "inch": ("inch", 1), "英寸": ("inch", 1), "°c": ("°c", 1), "v": ("v", 1), "volt": ("v", 1), "伏": ("v", 1),
    "w": ("w", 1), "watt": ("w", 1), "瓦": ("w", 1), "litre": ("litre", 1), "liter": ("litre", 1), "升": ("litre", 1),
    "point": ("point", 1), "积分": ("point", 1), "月": ("month of the year", 1), "日": ("day of the month", 1),
    **{month: (month, 1) for month in _MONTHS},
}  # fmt: skip
_UNIT: Final = "|".join(re.escape(unit) for unit in sorted(_UNITS, key=len, reverse=True))
_NUMBER: Final = r"\d{1,2}:\d\d|\d+(?:\.\d+)?"
_MEASURE: Final = re.compile(rf"(?<![\d.:])(?:({_NUMBER})-)?({_NUMBER})(?!\d)(?: ?({_UNIT})(?:s|es)?(?![a-z]))?")
_MONTH_FIRST: Final = re.compile(rf"\b({'|'.join(_MONTHS)}) (\d{{1,2}})(?:st|nd|rd|th)?\b")


class Figure(msgspec.Struct, frozen=True):
    """A figure of a text. `value` is in the smallest unit of its family, `number` as it was written. `unit` has no
    value for a bare number, and for a part that is not a number."""

    value: str
    unit: str | None
    number: str
    shown: str


def figures(text: str) -> list[Figure]:
    """Return the figures in the order of the text, each once. A number in words counts if a unit follows it."""
    text = _LIST_MARK.sub("", text)
    spelled = [figure for figure in _figures(normal(text)) if figure.unit is not None]
    return list(dict.fromkeys([*_figures(normal(text, words=False)), *spelled]))


def foreign(answer: str, sources: Iterable[str]) -> list[Figure]:
    """Return the answer's figures that are in none of the sources.

    A period in days is supported by one in working days, hours by days, and months by years. A figure with a unit is
    also supported by its number alone, and a bare number by any figure with that number.
    """
    known = [figure for source in sources for figure in (*figures(source), *_figures(normal(source)))]
    exact = {(figure.value, figure.unit) for figure in known}
    numbers = {figure.number for figure in known}
    working = {float(figure.value) * 1_440 for figure in known if figure.unit == "working day"}

    def borne(figure: Figure) -> bool:
        if (figure.value, figure.unit) in exact:
            return True
        if figure.unit is None:
            return figure.number in numbers
        return (figure.number, None) in exact or (figure.unit == "minute" and float(figure.value) in working)

    return [figure for figure in figures(answer) if not borne(figure)]


def _figures(text: str) -> list[Figure]:
    """Return the figures of a normalised text."""
    found: list[Figure] = []

    def take(value: str, shown: str) -> str:
        found.append(Figure(value, None, value, shown))
        return " "

    text = _LINK.sub(lambda match: take(match[0].rstrip("./"), match[0]), text)
    text = _SKU.sub(lambda match: take("".join(part or "" for part in match.groups()), match[0]), text)
    text = _MONTH_FIRST.sub(r"\2 \1", text)
    for match in _MEASURE.finditer(text):
        low, high, unit = match.groups()
        found += [_figure(number, unit, match[0]) for number in (low, high) if number is not None]
    return found


def _figure(number: str, unit: str | None, shown: str) -> Figure:
    if ":" in number:
        return Figure(number.zfill(5), None, number.zfill(5), shown)
    plain = _plain(float(number))
    if unit is None:
        return Figure(plain, None, plain, shown)
    name, factor = _UNITS[unit]
    return Figure(_plain(float(number) * factor), name, plain, shown)


def _plain(value: float) -> str:
    return f"{value:.4f}".rstrip("0").rstrip(".")
