"""Compare the entries of two readings. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shared.faq.entries import FaqEntry
from shared.faq.texts import shown
from shared.nouns import counted

_MOST_SHOWN: Final = 20
_MOST_SHARE: Final = 0.2
_FEW: Final = 3
"""Up to this number of entries is a page or two."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The questions of the entries that were added, changed, and are gone; `before`: how many there were."""

    added: list[str]
    changed: list[str]
    gone: list[str]
    before: int

    @property
    def lines(self) -> str:
        """What has changed, a line for each entry; nothing if there was no entry before."""
        return "".join(
            f"{word}: {shown(question)}\n" if place < _MOST_SHOWN else f"{word}: {len(questions) - place} more\n"
            for word, questions in (("added", self.added), ("changed", self.changed), ("gone", self.gone))
            for place, question in enumerate(questions[: _MOST_SHOWN + 1])
            if self.before
        )

    @property
    def are_many(self) -> bool:
        """Whether more has changed or is gone than on a few pages: a fault of the site is likely."""
        return len(self.changed) + len(self.gone) > max(_FEW, _MOST_SHARE * self.before)

    @property
    def share(self) -> str:
        """How much has changed."""
        entries = counted(self.before, "entry", "entries")
        return f"of {entries} {len(self.changed)} would change and {len(self.gone)} would go"


def changes_between(before: Sequence[FaqEntry], now: Sequence[FaqEntry]) -> Changes:
    """Return the changes between two readings. An entry has changed if its question, answer or page has."""
    old, new = ({(each.id, each.language): each for each in entries} for entries in (before, now))
    return Changes(
        added=[each.question for key, each in new.items() if key not in old],
        changed=[each.question for key, each in new.items() if key in old and _text(each) != _text(old[key])],
        gone=[each.question for key, each in old.items() if key not in new],
        before=len(old),
    )


def _text(entry: FaqEntry) -> tuple[str, str, str]:
    return entry.question, entry.answer, entry.url
