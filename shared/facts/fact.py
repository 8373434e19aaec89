"""A fact: its kind and its normalised value."""

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class Fact:
    """A figure or name in a text. Facts are equal if kind and value are; spelling and position do not count.

    Attributes:
        kind: the type of `value`: "number" for a number without a unit; a dimension ("duration" in seconds, "working
            days", "months", "mm", "percent", …) or currency ("eur"); "clock" (minutes of the day), "o'clock" (either
            half of the day), "date" (MM-DD), "month", "weekday" (Monday is 1), "code", "link", "mail", "digits" (a
            telephone or card number), "address".
        start: offset of the first character.
        stop: offset after the last character.
        figures: the numbers that a reader sees in it.
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
