"""The table of `make doors`: a row a client, and a row a number."""

from pathlib import Path

from msgspec import Struct
from rich.console import Console

from ops.measure.runner import write_json


class Row(Struct, kw_only=True):
    row: str
    figure: str
    target: str
    holds: bool


class Rows:
    """The rows found so far. They are written to `path`, where there is one, as they come."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._rows: list[Row] = []
        self.missed: list[str] = []

    def found(self, row: str, *, figure: str, target: str, holds: bool) -> None:
        """Keep a row; its test fails at its end where one of its rows does not hold."""
        self._rows.append(Row(row=row, figure=figure, target=target, holds=holds))
        Console().print(f"{'holds ' if holds else 'MISSED'} {row}: {figure} (target: {target})", markup=False)
        write_json(self._path, self._rows)
        if not holds:
            self.missed.append(f"{row}: {figure}; target: {target}")
