"""The blocks of plain text that a page is read as. Pure."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading; `level` is 1..6."""

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph, a list or a table, each item and row a separate line."""

    text: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its answer, as the page marks them. `whole`: it needs no heading above to be understood."""

    question: str
    answer: str
    whole: bool = field(default=False, compare=False)


Block = Heading | Text | Asked
