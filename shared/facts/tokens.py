"""The patterns of all that may be a fact, over lower-case text. Pure."""

import re
from collections.abc import Mapping
from typing import Final

from shared.facts import calendar, names
from shared.facts.numbers import DIGITS, ENGLISH, HAN
from shared.facts.units import PREFIX

_BEFORE_UNIT: Final = (
    r"(?:within|in|after|for|takes?|about|than|around|least|most|only|just|under|over|before|nearly|almost|to|costs?)"
)


def _one_of(patterns: Mapping[str, str]) -> str:
    return "|".join(f"(?P<{name}>{pattern})" for name, pattern in patterns.items())


# What begins alike stands behind one look at the beginning.
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
"""One of them; the name of the group tells which."""
OTHER: Final = re.compile(rf"(?s:(?:(?!{re.sub('[?]P<[a-z_0-9]+>', '?:', _TOKENS)})(?:[a-z]++[ ,;]*+|.))*+)")
"""All that begins none, a word at a time."""
