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
    """A question with its answer, as the page marks them.

    Attributes:
        whole: it needs no heading above to be understood
        row: the other cells of its row in a table; None if it is in no table
    """

    question: str
    answer: str
    whole: bool = field(default=False, compare=False)
    row: "Row | None" = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Row:
    """The other cells of a table's row; each may be empty. Rows of one `id` are an entry in several languages."""

    id: str = ""
    language: str = ""
    url: str = ""
    also: tuple[str, ...] = ()


Block = Heading | Text | Asked
