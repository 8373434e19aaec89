"""Find proper names in a text: people, firms, places, brands, certificates. Pure.

In English a word counts as a name if it has a capital letter and does not begin a sentence, or if it has only capital
letters. In Chinese a word in Latin letters counts. A name that begins an English sentence is therefore missed.
"""

import re
from collections.abc import Iterable
from typing import Final

_WORD: Final = re.compile(r"[^\W\d_][^\W_]*(?:['’&.-][^\W_]+)*")
_BEGINS: Final = re.compile(r"(?:\A|[.!?:;。！？：；…\n(“\"「])[\s*_>#•\"“”'(-]*\Z")
_HAN: Final = re.compile(r"[\u3400-\u9fff]")
_POSSESSIVE: Final = re.compile(r"['’]s?\Z")
_JOINTS: Final = re.compile(r"['’&.-]")
_LEAST: Final = 2
_MOST_CAPITALS: Final = 2  # words: "FSC?" and "GOTS CERTIFIED" are names, a whole question in capitals is none
# Words with a capital that name nothing that could be wrong; days and months are another kind of fact.
_COMMON_TEXT: Final = """
i i'm i'll i've i'd ok okay faq pdf url id pin sms tv pc usb wifi mr mrs ms dr monday tuesday wednesday thursday friday
saturday sunday january february march april may june july august september october november december mon tue wed thu
fri sat sun jan feb mar apr jun jul aug sep sept oct nov dec christmas easter new year
"""
_COMMON: Final = frozenset(_COMMON_TEXT.split())


def proper_names(text: str) -> list[str]:
    """Return a text's names in lower case, in their order; none of a text written all in capitals, in which names
    cannot be recognised. Codes with digits are facts of another kind."""
    chinese = _HAN.search(text) is not None
    if not chinese and text.isupper() and len(_WORD.findall(text)) > _MOST_CAPITALS:
        return []
    found = []
    for match in _WORD.finditer(text):
        word = match[0]
        if len(word) < _LEAST or any(map(str.isdigit, word)) or not (word[0].isupper() or (chinese and word.isascii())):
            continue
        begins = _BEGINS.search(text, max(0, match.start() - 12), match.start()) is not None
        if chinese or word.isupper() or not begins:
            name = _POSSESSIVE.sub("", word).lower()
            if name not in _COMMON:
                found.append(name)
    return found


def words_of(texts: Iterable[str]) -> frozenset[str]:
    """Return the words that names are checked against: all of the texts in lower case, also without a last "s"."""
    words = {_POSSESSIVE.sub("", match[0]).lower() for text in texts for match in _WORD.finditer(text)}
    words |= {part for word in words for part in _JOINTS.split(word)}
    return frozenset(words | {word.removesuffix("s") for word in words})


def unknown_names(text: str, known: frozenset[str]) -> list[str]:
    """Return the names of a text that `known` (`words_of`) does not have."""
    return not_in(proper_names(text), known)


def not_in(names: Iterable[str], known: frozenset[str]) -> list[str]:
    """Return those of these names that `known` (`words_of`) does not have."""
    return [
        name
        for name in names
        if name not in known
        and name.removesuffix("s") not in known
        and not all(part in known for part in _JOINTS.split(name))
    ]
