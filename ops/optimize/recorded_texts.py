"""A recording's texts, to calibrate with: of those alone who have consented. Pure.

Nobody has marked which of them are rare. A phrasing counts as long-tail where half of its terms or more (numbers
aside) are said in no other conversation of the recording.
"""

from collections import defaultdict
from typing import Final

from ops.texts.calibration_set import CalibrationText
from ops.traces.entries import Asked
from ops.traces.recording import Recording
from shared.faq.terms import TermExtractor

_FEWEST_TERMS: Final = 3
_LEAST_OWN_SHARE: Final = 0.5


def recorded_texts(recording: Recording) -> list[CalibrationText]:
    """In the order in which they came; a conversation is a group."""
    asked = [one for one in recording.asked if one.text is not None]
    extract = TermExtractor()
    terms = [_words(extract, one) for one in asked]
    said_in: defaultdict[str, set[str]] = defaultdict(set)
    for one, words in zip(asked, terms, strict=True):
        for word in words:
            said_in[word].add(one.session)
    return [
        CalibrationText(text=one.text or "", consented=True, rare=_rare(words, said_in), group=one.session)
        for one, words in zip(asked, terms, strict=True)
    ]


def _words(extract: TermExtractor, one: Asked) -> set[str]:
    return {term for term in extract(one.text or "") if not any(char.isdigit() for char in term)}


def _rare(words: set[str], said_in: dict[str, set[str]]) -> bool:
    if len(words) < _FEWEST_TERMS:
        return False
    own = sum(len(said_in[word]) == 1 for word in words)
    return own >= _LEAST_OWN_SHARE * len(words)
