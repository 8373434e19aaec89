"""Code that the listing commands share: the `--since` option, the table, and messages about rows."""

import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Final

import typer
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from ops.command_line import output
from ops.operate.letters import parse_duration_ms, printable
from shared.process.lifetime import BAD_INPUT_STATUS

_GAP: Final = 2
_READABLE: Final = 24
"""Characters of a wrapped column below which a reader meets a column of single words."""


def duration_ms(since: str) -> int:
    """Return the duration in `--since`. Raises `typer.BadParameter`."""
    duration = parse_duration_ms(since)
    if duration is None:
        raise typer.BadParameter(f"--since {since}: write 30s, 15m, 2h or 7d")
    return duration


def show_table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], *, folds: Collection[str], header: bool = True
) -> None:
    """Show a table. The columns in `folds` are wrapped on a narrow terminal; on one that is too narrow even for these,
    each row becomes a block of lines, one per cell that is not blank. Without a terminal each row is one line."""
    shown, console = [[printable(cell) for cell in row] for row in rows], output()
    if header and _width(titles, shown, folds) > console.width:
        for row in shown:
            console.print(_block(titles, row))
        return
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=header)
    for title in titles:
        table.add_column(title, overflow="fold", no_wrap=title not in folds)
    for row in shown:
        table.add_row(*map(Text, row))
    console.print(table)


def _width(titles: Sequence[str], rows: Sequence[Sequence[str]], folds: Collection[str]) -> int:
    """Return how wide a terminal a table needs: whole cells, and of a column in `folds` a readable part."""
    columns = zip(titles, *rows, strict=True)
    widths = [max(map(cell_len, (title, *cells))) for title, *cells in columns]
    readable = (min(each, _READABLE) if title in folds else each for title, each in zip(titles, widths, strict=True))
    return sum(readable) + _GAP * (len(titles) - 1)


def _block(titles: Sequence[str], row: Sequence[str]) -> Table:
    """Return a row as lines of a title and its cell, and a blank line."""
    block = Table.grid("", "", padding=(0, _GAP, 0, 0))
    for title, cell in zip(titles, row, strict=True):
        if cell:
            block.add_row(Text(title, style="bold"), Text(cell, overflow="fold"))
    block.add_row()
    return block


def say(line: str, status: int = 1) -> int:
    """Print why one row was left unchanged; return the exit status for that."""
    sys.stderr.write(f"replyline: {printable(line)}\n")
    return status


def unknown(line: str) -> int:
    """Print that a typed name or number names nothing, in a line with the remedy; return the status of bad input."""
    return say(line, BAD_INPUT_STATUS)
