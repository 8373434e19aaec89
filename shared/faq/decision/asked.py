"""Find the kinds of fact (an amount, a period, a time, a number, a name) that a question asks for or a text states.

An entry without a period does not answer "how long does it take?", even if the two share all their words.
"""

import re
from typing import Final

from shared.facts.proper import proper_names

_ASKS: Final = {
    "money": r"\bhow much (?!data|luggage|space|time)"
    r"|\b(?:price|cost|costs|charge|charges|fee|fees|pay for|expensive)\b"
    r"|多少钱|什么价|价格|费用|运费|收费|要钱|要付多少|另付|另收",
    "period": r"\bhow (?:long|fast|quick|soon)\b|\bhow many (?:days|hours|weeks|months|minutes|years)\b"
    r"|多久|几天|多长时间|几个月|几个小时|等多久|几年",
    "time": r"\bwhen\b|\b(?:until|by|at) (?:what|which) (?:time|hour|date|day)\b|\bwhat time\b|\bhow (?:early|late)\b"
    r"|几点|最晚|最早|什么时候|何时|几号",
    "number": r"\bhow (?:many|big|large|heavy|tall|wide|loud|high|deep|far|old|thick|much (?:data|luggage|space))\b"
    r"|\b(?:weight|size|height|width|dimensions) of\b|多大|多重|多高|多宽|几个|几位|几件|几次|多少(?!钱)",
    "name": r"\bwho\b|\bwhose\b|\bwhich (?:firm|company|carrier|brand|city|country|town|bank|airport|partner)\b"
    r"|\bname of\b|谁|哪家|哪个品牌|叫什么|哪个城市|哪国",
    "weight": r"\bhow heavy\b|\bweigh(?:s|t)?\b|多重|重量|净重|毛重|几斤|几公斤",
    "length": r"\bhow (?:tall|wide|deep|thick)\b|(?<![费价率额金税])多高|多宽|多深|多厚"
    r"|\bhow high\b(?!.*\b(?:fees?|costs?|dut(?:y|ies)|prices?|charges?|discounts?|tax(?:es)?|rates?|values?"
    r"|amounts?)\b)",
    "noise": r"\bhow (?:loud|noisy|quiet|silent)\b|\bdecibels?\b|分贝|噪音",
    "place": r"\bwhere\b|哪里|哪儿|在哪",
    "reason": r"\bwhy\b|为什么|为啥|原因",
}
_STATES: Final = {
    "money": r"[€$£]\s?\d|\d\s?(?:€|euros?\b|dollars?\b|欧元|元)|\bfree\b|\bno (?:fee|cost|charge)|免费|不收",
    "period": r"\b(?:day|hour|week|month|year|minute|night)s?\b"
    r"|\d\s?(?:天|小时|周|个月|年|分钟|个?工作日|晚)|[一两三四五六七八九十]天",
    "time": r"\d:\d\d"
    r"|\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b|\b(?:weekdays?|noon|midnight|tomorrow|same day)\b"
    r"|\b(?:within|until|after|before|from|on the) \d|周[一二三四五六日末]|\d\s?[点日号月]|工作日|之内|内",
    "number": r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|twice|once)\b|[一两二三四五六七八九十]",
    "weight": r"\d\s?(?:kg|g|grams?|kilos?|kilograms?|lbs?|pounds?|oz|tons?|tonnes?)\b|\d\s?(?:公斤|千克|克|斤|吨)",
    "length": r"\d\s?(?:[cmk]?m|in|inch(?:es)?|ft|feet|foot|met(?:er|re)s?|centimet(?:er|re)s?)\b"
    r"|\d\s?(?:厘米|毫米|米|英寸)",
    "noise": r"\d\s?(?:db|decibels?)\b|\d\s?分贝",
    "place": r"\b(?:at|in|on|under|from) (?:the |your |our )?[\"“A-Z]|\"|“"
    r"|\b(?:account|page|site|app|store|shop|checkout)\b"
    r"|在|中|页|店|里",
    "reason": r"\bbecause|since\b|so that|due to|\bfor (?:safety|hygiene|reasons)|因为|由于|因|为了|原因|以便",
}
KINDS: Final = tuple(_ASKS)
NEEDED: Final = frozenset(("name", "weight", "length", "noise"))
"""Nothing that states no fact of this kind answers a question for one."""
_ASKS_FOR: Final = {kind: re.compile(pattern, re.IGNORECASE) for kind, pattern in _ASKS.items()}
_STATED: Final = {
    kind: re.compile(pattern, 0 if kind == "place" else re.IGNORECASE) for kind, pattern in _STATES.items()
}


def asks_for(question: str) -> frozenset[str]:
    """Return the kinds of fact that a question asks for."""
    return frozenset(kind for kind, pattern in _ASKS_FOR.items() if pattern.search(question))


def states(text: str) -> frozenset[str]:
    """Return the kinds of fact that a text states."""
    stated = {kind for kind, pattern in _STATED.items() if pattern.search(text)}
    return frozenset(stated | {"name"} if proper_names(text) else stated)
