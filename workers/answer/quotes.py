"""Choose the FAQ sentence that replaces a sentence of the model whose facts the FAQ does not support, and detect a
model that repeats itself. Pure."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from shared.facts import facts_in
from shared.faq.speech.sentences import sentences
from shared.wire.outcome import Grounding

_WORD: Final = re.compile(r"[a-z0-9]+|[^\W_]")
_LONG_BYTES: Final = 15
_SHORT_TIMES: Final = 3
_ROUNDS: Final = 3
_SINGLE_ROUNDS: Final = 6
_MAX_PERIOD: Final = 16


def wording(sentence: str) -> str:
    """Return a sentence by its letters and digits alone."""
    return "".join(_WORD.findall(sentence.lower()))


class Repetition:
    """Remembers an answer's sentences."""

    def __init__(self) -> None:
        self._times: Counter[str] = Counter()

    def again(self, sentence: str) -> bool:
        """Return whether that sentence was there before; a short one ("Yes.") may be, once."""
        words = wording(sentence)
        if not words:
            return False
        self._times[words] += 1
        return self._times[words] >= (2 if len(words.encode()) >= _LONG_BYTES else _SHORT_TIMES)


def goes_round(text: str) -> bool:
    """Return whether a few words come three times in a row or more. A single word may be said more often ("no, no,
    no")."""
    words = _WORD.findall(text.lower())
    if len(words) - len(set(words)) < 2:  # noqa: PLR2004 - two more rounds of one word, at the least
        return False
    for period in range(1, min(_MAX_PERIOD, len(words) // _ROUNDS) + 1):
        needed = period * (_ROUNDS - 1) if period > 1 else _SINGLE_ROUNDS - 1
        same = 0
        for word, before in zip(words[period:], words, strict=False):
            same = same + 1 if word == before else 0
            if same == needed:
                return True
    return False


_LATIN_WORD: Final = re.compile(r"[a-z]{3,}")
_HAN_PAIR: Final = re.compile(r"(?=([\u4e00-\u9fff]{2}))")
_STOP_TEXT: Final = """
all and any are but can each for from has have its not our that the this was were when which will with you your
"""
_STOP: Final = frozenset(_STOP_TEXT.split())
_STEM: Final = 5
_PERIODS: Final = frozenset(("duration", "working days", "months", "nights"))
_SAME_KIND: Final = 3
_SAID_SHARE: Final = 0.8


class Quote(NamedTuple):
    id: str
    text: str


@dataclass(frozen=True, slots=True)
class _Sentence:
    text: str
    wording: str
    terms: frozenset[str]
    kinds: frozenset[str]


class _Entry:
    def __init__(self, grounding: Grounding) -> None:
        self.id = grounding.id
        self.sentences = [_read(part) for part in sentences(grounding.answer)]
        self.terms = _terms(grounding.question).union(*(sentence.terms for sentence in self.sentences))
        self.kinds = frozenset[str]().union(*(sentence.kinds for sentence in self.sentences))


class Quotes:
    """The sentences of an answer's grounding. No sentence is quoted twice, nor after the model has said it."""

    def __init__(self, grounding: Sequence[Grounding]) -> None:
        self._grounding = grounding
        self._entries: list[_Entry] | None = None
        self._quoted: set[str] = set()

    def instead_of(self, sentence: str, shown: str) -> Quote | None:
        """Return the quote that replaces a sentence; None if every matching sentence has been said.

        It is the best matching sentence of the best matching entry, by unit and shared words. If nothing is `shown`
        yet, the entry's sentences before it are included, or its first sentence is quoted if none matches.
        """
        meant = _read(sentence)
        entries = self._read_entries()
        entry = max(entries, key=lambda each: _likeness(meant, each), default=None)
        if entry is None:
            return None
        scores = [_likeness(meant, part) if self._unsaid(part, shown) else -1 for part in entry.sentences]
        best = max(range(len(scores)), key=scores.__getitem__, default=None)
        if best is None or scores[best] < (0 if not shown else 1):
            return None
        chosen = entry.sentences[0 if not shown else best : best + 1]
        self._quoted.update(part.wording for part in chosen)
        return Quote(entry.id, "".join(part.text for part in chosen).strip())

    def rest_of(self, entry_id: str, shown: str) -> str:
        """Return an entry's sentences that have not been said, with the space before each."""
        entry = next(each for each in self._read_entries() if each.id == entry_id)
        left = [part for part in entry.sentences if self._unsaid(part, shown)]
        self._quoted.update(part.wording for part in left)
        return "".join(part.text for part in left)

    def has_said(self, sentence: str) -> bool:
        """Return whether that very sentence was quoted."""
        return bool(self._quoted) and wording(sentence) in self._quoted

    def _read_entries(self) -> list[_Entry]:
        if self._entries is None:  # most answers need none
            self._entries = [_entry_of(each) for each in self._grounding]
        return self._entries

    def _unsaid(self, part: _Sentence, shown: str) -> bool:
        if part.wording in self._quoted:
            return False
        if not part.terms or not shown:
            return True
        shown_terms = _terms(shown)
        facts = set(facts_in(part.text))
        return len(part.terms & shown_terms) < _SAID_SHARE * len(part.terms) or not facts.issubset(facts_in(shown))


@lru_cache(1_024)
def _entry_of(grounding: Grounding) -> _Entry:
    """Return a grounding's parsed entry. Entries are cached: they are the shop's texts, and the same one is in many
    prompts."""
    return _Entry(grounding)


def _read(text: str) -> _Sentence:
    kinds = frozenset("period" if fact.kind in _PERIODS else fact.kind for fact in facts_in(text))
    return _Sentence(text, wording(text), _terms(text), kinds)


def _likeness(meant: _Sentence, there: _Sentence | _Entry) -> int:
    return _SAME_KIND * len(meant.kinds & there.kinds) + len(meant.terms & there.terms)


def _terms(text: str) -> frozenset[str]:
    words = [word[:_STEM] for word in _LATIN_WORD.findall(text.lower()) if word not in _STOP]
    return frozenset((*words, *_HAN_PAIR.findall(text)))
