"""Code that the listing commands share: the `--since` option, the table, and messages about rows."""

import sys
from collections.abc import Collection, Iterable, Sequence

import typer
from rich.table import Table
from rich.text import Text

from ops.command_line import output
from ops.operate.letters import parse_duration_ms, printable
from shared.process.lifetime import BAD_INPUT_STATUS


def duration_ms(since: str) -> int:
    """Return the duration in `--since`. Raises `typer.BadParameter`."""
    duration = parse_duration_ms(since)
    if duration is None:
        raise typer.BadParameter(f"--since {since}: write 30s, 15m, 2h or 7d")
    return duration


def show_table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], *, folds: Collection[str], header: bool = True
) -> None:
    """Show a table. The columns in `folds` are wrapped on a narrow terminal. Without a terminal each row is one
    line."""
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=header)
    for title in titles:
        table.add_column(title, overflow="fold", no_wrap=title not in folds)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    output().print(table)


def say(line: str, status: int = 1) -> int:
    """Print why one row was left unchanged; return the exit status for that."""
    sys.stderr.write(f"replyline: {printable(line)}\n")
    return status


def unknown(line: str) -> int:
    """Print that a typed name or number names nothing, in a line with the remedy; return the status of bad input."""
    return say(line, BAD_INPUT_STATUS)
