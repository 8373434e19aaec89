"""Find a customer's own words, and what looks like personal data, in a text that is about to be published. Pure."""

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

from shared.facts.finding import facts_in
from shared.faq.terms import wording

_KINDS: Final = {"mail": "an e-mail address", "digits": "a telephone or card number", "address": "a street address"}
_MIN_LONG_NUMBER: Final = 10_000
_ROUND: Final = 1_000  # "100000 points" names no customer
# Nine digits or more, however they are grouped and no date, seven Han digits, or the number of a document.
_LONG: Final = re.compile(
    r"(?<!\d)(?!\d{4}[-/.]\d\d?[-/.]\d\d?\b)\d(?:[ .·*_/()-]{0,2}\d){8,}"
    r"|[零〇一二三四五六七八九壹贰叁肆伍陆柒捌玖幺]{7,}|\b[A-Z]{1,3}\d{6,}\b",
    re.ASCII,
)
_SPELLED_MAIL: Final = re.compile(
    r"(?<![\w.+-])[\w.+-]{1,64}\s*(?:(?:@|[(\[{]\s*at\s*[)\]}])\s*[\w-]{1,63}\s*(?:\.|\W?\bdot\b\W?)"
    r"|\bat\s+[\w-]{1,63}\s*\W?\bdot\b\W?)\s*[a-z]{2,}",
    re.IGNORECASE,
)
_ORDER: Final = re.compile(
    r"(?:\b(?:order|invoice|tracking|customer|account|reference|ref|ticket|booking)\b|订单|单号|会员)"
    r"(?:\W|number\b|no\b|nr\b|id\b|code\b|is\b|号|是|为){0,6}((?=[\w-]*\d[\w-]*\d)[\w-]{3,}[A-Za-z0-9])",
    re.IGNORECASE | re.ASCII,
)
_NAME: Final = re.compile(
    r"\b(?i:I am|I['’]m|this is)\s+(?:(?i:mr|mrs|ms|dr|called|named)\.?\s+)?([A-Z][\w'’-]*(?:\s+[A-Z][\w'’-]*)*)"
    r"|\b(?i:my name is|my name['’]s|name\s*:)\s+([\w'’-]+(?:\s+[A-Z][\w'’-]*)*)"
    r"|(?:我叫|我姓|我的名字(?:叫|是)|姓名[:：]?)\s*([\u4e00-\u9fff]{1,4})"
)
# An account's name with a digit or "_": "WeChat Pay" is not one.
_ACCOUNT: Final = re.compile(
    r"(?<![\w.@/])@[a-z0-9_][\w.]{1,30}\w"
    r"|(?:微信|wechat|qq|telegram|whatsapp|instagram|insta)(?:id|号|\W){0,4}(?=[a-z_-]*[\d_])[\w-]{5,}",
    re.IGNORECASE | re.ASCII,
)
_SENTENCE: Final = re.compile(r"[^.!?\n。！？]+(?:[.!?](?=\S)[^.!?\n。！？]+)*")
_HAN: Final = re.compile(r"[\u3400-\u9fff]")
_MIN_WORDS: Final = 3
_MIN_HAN: Final = 5


def is_quoted(text: str, customer: str) -> bool:
    """Return whether a text is what a customer wrote, or contains a whole sentence of it, in any case, spacing and
    punctuation. A sentence of fewer than three words counts only alone."""
    written = wording(text)
    found = (match[0] for match in _SENTENCE.finditer(customer))
    long = (each for each in found if len(each.split()) >= _MIN_WORDS or len(_HAN.findall(each)) >= _MIN_HAN)
    return written == wording(customer) or any((said := wording(each)) and said in written for each in long)


def personal_data(text: str) -> list[str]:
    """Return what looks like personal data, each as `what "it"`: mail and street addresses, telephone, card and order
    numbers, accounts, and the name that follows "I am". Full-width characters are read as plain ones, invisible ones
    left out."""
    visible = "".join(each for each in text.replace("%40", "@") if unicodedata.category(each) != "Cf")
    return list(dict.fromkeys(_found(unicodedata.normalize("NFKC", visible))))


def _found(text: str) -> Iterator[str]:
    for fact in facts_in(text):
        written = f'"{text[fact.start : fact.stop]}"'
        if fact.kind in _KINDS:
            yield f"{_KINDS[fact.kind]} {written}"
        elif fact.kind == "number" and any(n >= _MIN_LONG_NUMBER and n % _ROUND for n in fact.figures):
            yield f"a long number {written}"
    for match in _LONG.finditer(text):
        yield f'a long number "{match[0]}"'
    for match in _SPELLED_MAIL.finditer(text):
        yield f'an e-mail address "{match[0]}"'
    for match in _ORDER.finditer(text):
        yield f'an order number "{match[1]}"'
    for match in _ACCOUNT.finditer(text):
        yield f'an account "{match[0]}"'
    for match in _NAME.finditer(text):
        yield f'a name "{match[match.lastindex or 0]}"'
