"""Units after a number, and currencies before it. Pure."""

import re
from decimal import Decimal
from typing import Final, NamedTuple


class Unit(NamedTuple):
    """A unit. `factor` converts to the base unit of its kind. `is_rest`: the number says what remains of a price, as in
    九折 and 95折."""

    kind: str
    factor: Decimal = Decimal(1)
    is_rest: bool = False

    def value(self, number: Decimal) -> Decimal:
        if self.is_rest:
            return 100 - (number * 10 if number < 10 else number)  # noqa: PLR2004
        return number * self.factor


# kind → factor → names. Latin names need a boundary after them, Chinese ones do not.
_TABLE: Final[dict[str, dict[str, str]]] = {
    "duration": {
        "1": "s sec secs second seconds 秒 秒钟",
        "60": "min mins minute minutes 分钟",
        "3600": "h hr hrs hour hours 小时 个小时 钟头 个钟头",
        "86400": "day days 天 日",
        "604800": "week weeks 周 星期 个星期 礼拜 个礼拜",
    },
    "working days": {"1": "working_day working_days business_day business_days workday workdays 工作日 个工作日"},
    "months": {"1": "month months 个月", "3": "quarter quarters 季度 个季度", "12": "year years yr yrs 年"},
    "nights": {"1": "night nights 晚 夜"},
    "percent": {"1": "% percent per_cent ％ 个百分点"},
    "eur": {"1": "€ eur euro euros 欧元 欧"},
    "usd": {"1": "$ usd dollar dollars 美元 美金"},
    "gbp": {"1": "£ gbp pound pounds 英镑"},
    "cny": {"1": "¥ cny rmb yuan 元 块 块钱 人民币"},
    "jpy": {"1": "jpy yen 日元"},
    "chf": {"1": "chf franc francs 瑞士法郎"},
    "kr": {"1": "kr nok sek dkk 克朗"},
    "pln": {"1": "pln zł zloty"},
    "cents": {"1": "cent cents ct 欧分 美分"},
    "°C": {"1": "°c °_c ℃ °celsius degree degrees degrees_celsius ° 度 摄氏度"},
    "°F": {"1": "°f °_f ℉ degrees_fahrenheit 华氏度"},
    "g": {
        "0.001": "mg 毫克",
        "1": "g gram grams 克",
        "500": "斤",
        "1000": "kg kilo kilos kilogram kilograms 千克 公斤",
    },
    "lb": {"1": "lb lbs"},
    "mm": {
        "1": "mm 毫米",
        "10": "cm centimetre centimetres centimeter centimeters 厘米 公分",
        "1000": "m metre metres meter meters 米",
        "1000000": "km kilometre kilometres kilometer kilometers 公里 千米",
        "25.4": "inch inches 英寸 寸",
        "304.8": "ft foot feet 英尺",
        "1609344": "mile miles 英里",
    },
    "ml": {"1": "ml 毫升", "10": "cl", "1000": "l litre litres liter liters 升"},
    "W": {"1": "w watt watts 瓦", "1000": "kw 千瓦"},
    "Wh": {"1": "wh", "1000": "kwh"},
    "V": {"1": "v volt volts 伏"},
    "mAh": {"1": "mah", "1000": "ah"},
    "MB": {"1": "mb", "1000": "gb", "1000000": "tb"},
    "Hz": {"1": "hz", "1000": "khz", "1000000": "mhz", "1000000000": "ghz"},
}
UNITS: Final[dict[str, Unit]] = {
    **{
        name.replace("_", " "): Unit(kind, Decimal(factor))
        for kind, by_factor in _TABLE.items()
        for factor, names in by_factor.items()
        for name in names.split()
    },
    "折": Unit("percent", is_rest=True),
}
PREFIXES: Final = {"€": "eur", "eur": "eur", "$": "usd", "us$": "usd", "usd": "usd", "£": "gbp", "gbp": "gbp",
                   "¥": "cny", "￥": "cny", "cny": "cny", "rmb": "cny", "人民币": "cny", "chf": "chf", "nok": "kr",
                   "sek": "kr", "dkk": "kr", "pln": "pln"}  # fmt: skip


def _longest_first(names: list[str]) -> str:
    return "|".join(re.escape(name) for name in sorted(names, key=lambda name: (-len(name), name)))


_LATIN: Final = _longest_first([name for name in UNITS if name[-1].isascii() and name[-1].isalpha()])
_OTHER: Final = _longest_first([name for name in UNITS if not (name[-1].isascii() and name[-1].isalpha())])
_BETWEEN: Final = r"[ \t\u00a0\u202f]{0,3}"

PREFIX: Final = rf"(?:{_longest_first(list(PREFIXES))}){_BETWEEN}"
UNIT: Final = re.compile(
    rf"{_BETWEEN}-?(?:(?:more|full|whole|further|additional|extra|calendar|consecutive)[ ]){{0,2}}"
    rf"(?P<latin>{_LATIN})(?![a-z])"
    rf"|{_BETWEEN}[多余来]?(?P<half>个?半(?=[个小钟天年月周星礼晚]))?(?P<other>{_OTHER})(?![级气龄])"
)
"""What may follow a number, in lower case and on the same line."""
CONNECTOR: Final = re.compile(
    r"[ \t]{0,2}(?:(?:[-–—~～/x×*至到或和]|to|and|or|by|through|until)[ \t]{0,2}){1}(?:个)?", re.IGNORECASE
)
"""What joins two numbers with one unit: 3–5 days, between 3 and 5 days, 48 × 30 cm, 3 至 5 天."""
RANGE: Final = re.compile(r"[ \t]{0,2}(?:[-–—~～至到]|to)[ \t]{0,2}", re.IGNORECASE)
