"""One spelling for what can be written in several ways, so that a right answer is found right in any wording. Pure.

Width, case, dashes, quotes and spacing; numbers in words, English and Chinese; currencies and percent; plurals of the
units that follow numbers; times of day with am, pm or 下午.
"""

import re
import unicodedata
from typing import Final

_ENGLISH_ONES: Final = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_ENGLISH_TENS: Final = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_ENGLISH: Final = {word: at for at, word in enumerate(_ENGLISH_ONES)} | {
    word: 10 * at for at, word in enumerate(_ENGLISH_TENS, 2)
}
_ONE: Final = "|".join(_ENGLISH_ONES[1:10])
_ENGLISH_NUMBER: Final = re.compile(
    rf"\b(?:(?P<hundreds>{_ONE}|a) hundred(?: and)?(?: |\b))?"
    rf"(?:(?P<tens>{'|'.join(_ENGLISH_TENS)})(?:[- ](?P<ones>{_ONE}))?|(?P<small>{'|'.join(_ENGLISH_ONES)}))?\b"
)
_CHINESE_DIGITS: Final = {digit: at for at, digit in enumerate("零一二三四五六七八九")} | {"两": 2, "〇": 0}
_CHINESE_SCALES: Final = {"十": 10, "百": 100, "千": 1_000}
# Only where a unit follows: 一 is in many words that are no number.
_CHINESE_UNITS: Final = (
    "分钟|小时|个小时|天|日|晚|周|星期|个星期|个月|月|年|个工作日|工作日|欧元|元|块|次|笔|颗|件|张|位|期|家|公斤|个用户|个字符|"
    "积分|分|点|升|厘米|英寸|瓦|度"
)
_CHINESE_NUMBER: Final = re.compile(rf"[零〇一二两三四五六七八九十百千]+(?=\s*(?:{_CHINESE_UNITS}))")
_CHINESE_PERCENT: Final = re.compile(r"百分之([零一二两三四五六七八九十百]+|\d+(?:\.\d+)?)")

_UNIT: Final = (
    "second|minute|hour|day|night|week|month|year|euro|point|piece|person|user|character|screw|store|try|digit|inch|"
    "kilo|kilogram|litre|liter|percent|percentage|code|country|instalment|installment|wash"
)
_PLURAL: Final = re.compile(rf"(?<![a-z])({_UNIT})(?:es|s)(?![a-z])")
_HAN: Final = r"[\u3400-\u9fff]"
_RULES: Final = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"[\u2010-\u2015\u2212~]", "-"),
        (r"[\u2018\u2019\u02bc]", "'"),
        (r"[\u201c\u201d\u300c\u300d]", '"'),
        (r"(?<=\d),(?=\d{3}(?!\d))", ""),
        (r"\b(?:business|weekday|week) ?days?\b", "working day"),
        (r"\bworkdays?\b", "working day"),
        (r"(?<=\d)-(?=(?:minute|hour|day|night|week|month|year|working|character|digit|inch|person|user)\b)", " "),
        (r"(?:€|\beur) ?(\d+(?:\.\d+)?)", r"\1 eur"),
        (r"\$ ?(\d+(?:\.\d+)?)", r"\1 usd"),
        (r"£ ?(\d+(?:\.\d+)?)", r"\1 gbp"),
        (r"(\d) ?(?:€|euro\b|欧元|欧)", r"\1 eur"),
        (r"(\d) ?(?:%|percent\b|per cent\b)", r"\1%"),
        (r"(\d) ?(?:kilogram|kilo|公斤|千克)(?![a-z])", r"\1 kg"),
        (r"(\d) ?(?:° ?c|℃|degrees? (?:c|celsius)|摄氏度|度)(?![a-z])", r"\1 °c"),
        (r"(?<![\d.:])(\d+(?::\d\d|\.\d+)?)(?: and | to | or | until | till | 至 | 到 |至|到)(?=\d)", r"\1-"),
        (r"(?<=\d) ?- ?(?=\d)", "-"),
        (r"(\d)(?=(?:kg|cm|mm|km|eur|v|w|l)\b)", r"\1 "),
    )
)
_AM_PM: Final = re.compile(r"\b(\d{1,2})(?::(\d\d))? ?([ap])\.?m\b\.?")
_CHINESE_HOUR: Final = re.compile(r"(早上|上午|中午|下午|晚上|傍晚)? ?(\d{1,2}) ?点(?:(半)|(\d{1,2}) ?分)?")
_HOURS_IN_HALF_A_DAY: Final = 12
_MAX_SPELLED: Final = 999_999


def normal(text: str, *, words: bool = True) -> str:
    """Return the text in the one spelling. Two texts that differ only in how they are written have the same. Without
    `words` numbers that are spelled out stay so."""
    text = unicodedata.normalize("NFKC", text).casefold()
    for rule, replacement in _RULES[:3]:
        text = rule.sub(replacement, text)
    text = re.sub(r"\s+", " ", text)
    if words:
        text = _ENGLISH_NUMBER.sub(_english, text)
        text = _CHINESE_PERCENT.sub(lambda found: f"{_chinese(found[1])}%", text)
        text = _CHINESE_NUMBER.sub(lambda found: _chinese(found[0]), text)
    text = _PLURAL.sub(r"\1", text)
    text = _CHINESE_HOUR.sub(_chinese_hour, text)
    text = _AM_PM.sub(_hour, text)
    for rule, replacement in _RULES[3:]:
        text = rule.sub(replacement, text)
    text = re.sub(rf"(?<={_HAN}) | (?={_HAN})", "", text)
    return text.strip()


def says(answer: str, spelling: str) -> bool:
    """Return whether a normal text holds a normal fact, whole: "30 day" is not in "130 day", nor "l" in "large"."""
    return bool(occurrences(answer, spelling))


def occurrences(answer: str, spelling: str) -> list[int]:
    """Return where a normal fact begins in a normal text, whole each time."""
    is_clock = ":" in spelling  # the end of a range is a time too
    before = (
        (r"(?<![\d.])" if is_clock else r"(?<![\d.\-])")
        if spelling[0].isdigit()
        else r"(?<![a-z0-9])"
        if spelling[0].isascii()
        else ""
    )
    after = r"(?!\d|[.:]\d)" if spelling[-1].isdigit() else r"(?![a-z0-9])" if spelling[-1].isascii() else ""
    inflected = r"(?:s|es)?" if spelling[-1].isascii() and spelling[-1].isalpha() and len(spelling) > 1 else ""
    return [found.start() for found in re.finditer(before + re.escape(spelling) + inflected + after, answer)]


def _english(found: re.Match[str]) -> str:
    if not any(found.groups()):
        return found[0]
    hundreds, tens, ones, small = found.group("hundreds", "tens", "ones", "small")
    total = 100 * (1 if hundreds == "a" else _ENGLISH.get(hundreds or "", 0))
    total += sum(_ENGLISH[word] for word in (tens, ones, small) if word is not None)
    space = " " if found[0].endswith(" ") else ""
    return f"{total}{space}"


def _chinese(text: str) -> str:
    if text[0].isdigit():
        return text
    total = digit = 0
    for character in text:
        if character in _CHINESE_SCALES:
            total += (digit or 1) * _CHINESE_SCALES[character]
            digit = 0
        else:
            digit = _CHINESE_DIGITS[character]
    total += digit
    return str(min(total, _MAX_SPELLED))


def _hour(found: re.Match[str]) -> str:
    hour = int(found[1]) % _HOURS_IN_HALF_A_DAY + (_HOURS_IN_HALF_A_DAY if found[3] == "p" else 0)
    return f"{hour}:{found[2] or '00'}"


def _chinese_hour(found: re.Match[str]) -> str:
    hour = int(found[2])
    if found[1] in {"下午", "晚上", "傍晚"} and hour < _HOURS_IN_HALF_A_DAY:
        hour += _HOURS_IN_HALF_A_DAY
    minutes = "30" if found[3] else (found[4] or "0").zfill(2)
    return f"{hour}:{minutes}"
