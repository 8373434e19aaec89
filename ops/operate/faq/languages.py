"""Decide whether a text is in a language that the FAQ does not speak, by the function words that it has. Pure."""

import re
from typing import Final

_WORD: Final = re.compile(r"[^\W\d_]+")
_OTHER_SCRIPT: Final = re.compile(r"[\u0370-\u1fff\u3040-\u30ff\uac00-\ud7af]")
_ENGLISH_WORDS: Final = (
    "the of and to is are you your we our for with within from can do how what when where it be or not if will this "
    "that yes by at have"
)
_ENGLISH: Final = frozenset(_ENGLISH_WORDS.split())
# No English text has these but as names.
_OTHERS_WORDS: Final = (
    "der das und nach von im zum den dem sind haben kann nicht wir ist sie mit für auf ein eine wie oder ihre bei "
    "le les des est nous vous une dans avec et "
    "votre sur être où el los las una por que está usted nuestra puede cómo qué del il che di della sono nella gli "
    "è può como não uma você nós são het een wij voor zijn niet jest się nie oraz och är inte vi på og"
)
_OTHERS: Final = frozenset(_OTHERS_WORDS.split())
_FEWEST: Final = 2
_SCRIPT_SHARE: Final = 0.2


def is_foreign(text: str, declared: str = "") -> bool:
    """Return whether a text is neither English nor Chinese. `declared` is the language that its page names; it decides
    if the text has too few function words."""
    letters = sum(map(str.isalpha, text))
    if len(_OTHER_SCRIPT.findall(text)) > _SCRIPT_SHARE * letters:
        return True
    words = _WORD.findall(text.lower())
    english, others = (sum(word in known for word in words) for known in (_ENGLISH, _OTHERS))
    if english + others < _FEWEST:
        named = re.split("[-_]", declared.strip().lower())[0]
        return bool(named) and named not in ("en", "zh") and re.search(r"[\u4e00-\u9fff]", text) is None
    return others > english
