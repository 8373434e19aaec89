"""Read a table's rows as lines that can be understood alone: "Poland: Fee 4.90 €, Days 3". Pure."""

from collections.abc import Callable, Iterator
from typing import Final

from selectolax.lexbor import LexborNode

_MOST_SPAN: Final = 100


def rows_of(table: LexborNode, text_of: Callable[[LexborNode], str]) -> Iterator[str]:
    """Yield the caption, and each row with its columns' names. The names are in the first rows, if these have only
    `<th>`."""
    if (caption := table.css_first("caption")) is not None and (text := text_of(caption)):
        yield text
    rows = [row for row in _grid(table, text_of) if row]
    names: dict[int, list[str]] = {}
    while len(rows) > 1 and all(is_name for _, is_name in rows[0].values()):
        for place, (text, _) in rows.pop(0).items():
            if text and text not in names.setdefault(place, []):
                names[place].append(text)
    for row in rows:
        (first, _), *rest = [row[place] for place in sorted(row)]
        named = [
            f"{' '.join(names.get(place, []))} {text}".strip()
            for place, (text, _) in zip(sorted(row)[1:], rest, strict=True)
            if text
        ]
        if first or named:
            yield f"{first}: {', '.join(named)}" if named and first else first or ", ".join(named)


def _grid(table: LexborNode, text_of: Callable[[LexborNode], str]) -> Iterator[dict[int, tuple[str, bool]]]:
    """Yield each row's cells by column: text, whether it is a `<th>`. A cell that spans rows or columns is repeated in
    each."""
    below: dict[int, tuple[int, tuple[str, bool]]] = {}
    for node in table.css("tr"):
        row = {place: cell for place, (_, cell) in below.items()}
        below = {place: (left - 1, cell) for place, (left, cell) in below.items() if left > 1}
        place = 0
        for each in node.iter():
            if each.tag not in ("td", "th"):
                continue
            cell = text_of(each), each.tag == "th"
            for _ in range(_span(each, "colspan")):
                while place in row:
                    place += 1
                row[place] = cell
                if (rows := _span(each, "rowspan")) > 1:
                    below[place] = rows - 1, cell
        yield row


def _span(cell: LexborNode, name: str) -> int:
    given = cell.attributes.get(name) or "1"
    return min(max(int(given), 1), _MOST_SPAN) if given.isdecimal() else 1
