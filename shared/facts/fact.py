"""A fact: its kind and its normal value."""

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class Fact:
    """A figure or a name that a text states: equal facts compare equal, however they are written and wherever.

    `kind` says what `value` is of: "number" for a number alone; a dimension ("duration" in seconds, "working days",
    "months", "mm", "percent", …) or a currency ("eur") for one with a unit; "clock" (minutes of the day), "o'clock"
    (where it may be either half of the day), "date" (MM-DD), "month", "weekday" (Monday is 1), "code", "link", "mail",
    "digits" (a telephone's, a card's), "address". It stands at `start` up to `stop`; `figures` are the numbers that a
    reader finds in it.
    """

    kind: str
    value: Decimal | str
    start: int
    stop: int
    figures: tuple[Decimal, ...] = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Fact):
            return NotImplemented
        return (self.kind, self.value) == (other.kind, other.value)

    def __hash__(self) -> int:
        return hash((self.kind, self.value))
