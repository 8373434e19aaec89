"""Collect the facts (amounts, periods, dates, names) that a set of texts states, and check whether another text states
a fact that is not among them. Pure."""

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise
from typing import Final

from shared.facts.fact import Fact
from shared.facts.finding import facts_in

_WEEK: Final = 7
_HALF_DAY_MINUTES: Final = 720
_TO: Final = re.compile(r"\s{0,2}(?:[-–—~～至到]|to|through|until)\s{0,2}", re.IGNORECASE)
_WORD_AND_NUMBER: Final = re.compile(r"(?<![a-z0-9])([a-z]{1,12})[-_ ]?(\d{1,12})(?:[-_ ]?([a-z])(?![a-z]))?")
_DIGITS: Final = re.compile(r"\d{1,15}")
_PARTS: Final = re.compile(r"[-_ ]")

_NAMES: Final = frozenset(("code", "link", "mail", "digits", "address"))

_lasting_facts = lru_cache(4_096)(facts_in)


class Known:
    """The facts of texts that are taken as true; `bears_out` says whether they support a statement.

    A number with a unit needs one with a unit of the same kind ("two weeks" for "14 days", not "14 euros" or "14
    working days"); a number without a unit may match any of theirs.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        """Collect the facts of the shop's `texts`. They are cached beyond this object, since they are in many
        prompts."""
        self._facts: set[Fact] = set()
        self._figures: set[Decimal] = set()
        self._codes: set[str] = set()
        self._names: set[str] = set()
        for text in texts:
            self._take(text, _lasting_facts(text))

    def add(self, texts: Iterable[str], *, names_only: bool = False) -> None:
        """Add the facts of texts, or only codes, links and the like. Nothing is cached, since customers' texts are
        among them."""
        for text in texts:
            self._take(text, [fact for fact in facts_in(text) if not names_only or fact.kind in _NAMES])

    def foreign(self, text: str, *, opens: bool = True) -> list[Fact]:
        """Return the facts of a text that the known texts do not support. `opens` as in `facts_in`."""
        return [fact for fact in facts_in(text, opens=opens) if not self.bears_out(fact)]

    def bears_out(self, fact: Fact) -> bool:
        if fact in self._facts:
            return True
        match fact.kind:
            case "number":
                return fact.value in self._figures
            case "code":
                return fact.value in self._codes
            case "link":
                return fact.value in self._names
            case _:
                return False

    def _take(self, text: str, facts: Sequence[Fact]) -> None:
        self._facts.update(facts)
        for fact in facts:
            self._figures.update(fact.figures)
            self._also(fact, text)
        self._weekdays([fact for fact in facts if fact.kind == "weekday"], text)
        for letters, digits, letter in _WORD_AND_NUMBER.findall(text.lower()):
            self._codes.update((f"{letters}{digits}", f"{letters}{digits}{letter}"))

    def _also(self, fact: Fact, text: str) -> None:
        """Add the facts that follow from a fact."""
        value = fact.value
        if isinstance(value, Decimal):
            if fact.kind == "clock":
                self._facts.add(Fact("o'clock", value % _HALF_DAY_MINUTES, 0, 0))
        elif fact.kind == "date":
            self._facts.add(Fact("month", Decimal(value[:2]), 0, 0))
        elif fact.kind in ("link", "mail"):
            self._names.add(re.split(r"[/?#]", value.rpartition("@")[2], maxsplit=1)[0])
        elif fact.kind == "code":
            # AX-3391-B is also called AX-3391, and 3391 is a number in it.
            written = _PARTS.split(text[fact.start : fact.stop].lower())
            self._codes.update("".join(written[:count]) for count in range(2, len(written)))
            self._figures.update(map(Decimal, _DIGITS.findall(value)))

    def _weekdays(self, days: Sequence[Fact], text: str) -> None:
        """Add the weekdays of a range: Monday to Friday includes Wednesday."""
        for first, last in pairwise(days):
            if _TO.fullmatch(text, first.stop, last.start):
                number = first.value
                while number != last.value:
                    assert isinstance(number, Decimal), "weekdays are numbered"
                    number = number % _WEEK + 1
                    self._facts.add(Fact("weekday", number, 0, 0))
