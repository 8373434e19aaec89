"""The terms that a text is indexed and searched by, and the language that it is in. No I/O, no state but the stemmer.

- A stock-keeping unit such as AX-3391-B gives itself whole (`ax-3391-b`, `ax-3391`) and its parts (`ax`, `3391`),
  however it is typed: `AX-3391-B`, `ax3391b`, `AX 3391 B`.
- Latin words are folded (case, width, accents) and stemmed; stop words are dropped.
- Chinese needs no dictionary: characters and pairs of neighbouring characters, without the words that every question
  has.
"""

import re
import unicodedata
from typing import Final

import Stemmer

from shared.faq.entries import Language

# A message that is longer than this is a story with a question at its start or its end.
MAX_CHARS: Final = 600

_HAN: Final = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+")
_KANA_OR_HANGUL: Final = re.compile(r"[\u3040-\u30ff\u1100-\u11ff\uac00-\ud7af]")
_WORD: Final = re.compile(r"[a-z0-9]+")
_LETTERS: Final = re.compile(r"[^\W\d_]{2,}")
_SKU: Final = re.compile(r"(?<![a-z0-9])([a-z]{2})[-_ ]?([0-9]{4})(?:[-_ ]?([a-z]))?(?![a-z0-9])")
_CONTRACTION: Final = re.compile(r"(?<=[a-z])(n)?['\u2019\u02bc]([a-z]{1,2})(?![a-z])")

_STOP_TEXT: Final = """
a about after all also am an and any are as at be been but by ca can could did do does for from get gets getting go got
guys had has have he hello her hey hi him his hiya how i id if im in into is it its ive just let like ll m me my no of
oh ok on or our out please pls plz re really s she should so some still t than thank thanks that the their them then
there these they this those to u up us ve very want was we were what when where which who why will with wo would you
your need
"""
_STOP_WORDS: Final = frozenset(_STOP_TEXT.split())
# Words that customers use for the same thing in a shop, mapped to the one that the index holds.
_SAME_WORD: Final = {
    **dict.fromkeys(("shipping", "shipment", "shipments", "postage"), "delivery"),
    **dict.fromkeys(("package", "packages", "pkg"), "parcel"),
    **dict.fromkeys(("promo", "voucher", "vouchers"), "coupon"),
    **dict.fromkeys(("purchase", "purchases", "purchased"), "order"),
    **dict.fromkeys(("guarantee", "guaranteed"), "warranty"),
    **dict.fromkeys(("smashed", "shattered", "broke"), "broken"),
    "xmas": "christmas",
    "pwd": "password",
    "bought": "buy",
    "sent": "send",
    **dict.fromkeys(("cant", "couldnt", "didnt", "doesnt", "dont", "hasnt", "havent", "isnt", "wasnt", "wont"), "not"),
}
# Words that make a sentence a question but say nothing of what is asked; the longer ones come first.
_CHINESE_FILLER: Final = re.compile(
    "请问一下|请问|麻烦|你好|您好|谢谢|一下|怎么办|怎么样|怎么|咋|如何|为什么|为啥|什么|啥|可不可以|可以|能不能|能够"
    "|是不是|有没有|你们|您们|我们|咱们|你家|贵店|哪里|哪儿|这个|那个|现在|最近|时候|已经|刚才"
    "|[我你您的了吗呢吧啊呀嘛哦哈亲是在就也都能会想要请给把被让还有个这那些才又很太好最]"
)


def detect_language(text: str) -> Language:
    """The FAQ's language for a text, judged by its script alone: Chinese, or English for everything else.

    A Latin word counts as much as a Chinese character, so that a brand or an SKU within a Chinese sentence leaves it
    Chinese. Kana and Hangul mean Japanese and Korean, which the FAQ does not speak.
    """
    text = _ends(text)
    han = sum(len(run) for run in _HAN.findall(text))
    if han == 0 or len(_KANA_OR_HANGUL.findall(text)) * 2 > han:
        return "en"
    latin = len(_LETTERS.findall(_HAN.sub(" ", text)))
    return "zh" if han >= latin else "en"


def wording(text: str) -> str:
    """A text without case, width, accents, spaces and punctuation: equal for two texts that are typed alike."""
    return "".join(char for char in _fold(_ends(text)) if char.isalnum())


class TermExtractor:
    """Turns text into terms. Holds the stemmer, which is not to be shared between threads."""

    def __init__(self) -> None:
        self._stem = Stemmer.Stemmer("english").stemWord

    def __call__(self, text: str) -> list[str]:
        """The terms of a text in their order, with repetitions. Only the ends of a long text count."""
        folded = _fold(_ends(text))
        return [*_sku_terms(folded), *self._word_terms(folded), *_chinese_terms(folded)]

    def _word_terms(self, folded: str) -> list[str]:
        words = _WORD.findall(_SKU.sub(_sku_parts, _CONTRACTION.sub(_spell_out, folded)))
        kept = (word for word in words if len(word) > 1 and word not in _STOP_WORDS)
        return [self._stem(_SAME_WORD.get(word, word)) for word in kept]


def _ends(text: str) -> str:
    if len(text) <= MAX_CHARS:
        return text
    half = MAX_CHARS // 2
    return f"{text[:half]} {text[-half:]}"


def _fold(text: str) -> str:
    """Full-width forms to plain ones, lower case, no accents."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text).casefold()
    return "".join(char for char in decomposed if not unicodedata.combining(char))


def _spell_out(match: re.Match[str]) -> str:
    # "didn't arrive" says "not arrive"; "we'll" and "it's" say nothing that the index knows.
    return " not" if match[1] else ""


def _sku_terms(folded: str) -> list[str]:
    terms = []
    for series, number, variant in _SKU.findall(folded):
        terms.append(f"{series}-{number}")
        if variant:
            terms.append(f"{series}-{number}-{variant}")
    return terms


def _sku_parts(match: re.Match[str]) -> str:
    return f" {match[1]} {match[2]} "


def _chinese_terms(folded: str) -> list[str]:
    terms = []
    for run in _HAN.findall(_CHINESE_FILLER.sub(" ", folded)):
        terms.extend(run)
        terms.extend(run[at : at + 2] for at in range(len(run) - 1))
    return terms
