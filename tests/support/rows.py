"""A table of figures against their targets, as `make doors`, `make lifecycle` and `make elastic` write it."""

from collections.abc import Mapping
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
    """The rows found so far. They are written to `path`, if it is set, as they arrive. A row of `asked` (each with its
    target) that has no result is written as "not run"."""

    def __init__(self, path: Path | None, asked: Mapping[str, str] | None = None) -> None:
        self._path = path
        self._rows = {
            row: Row(row=row, figure="not run", target=target, holds=False) for row, target in (asked or {}).items()
        }
        self.missed: list[str] = []

    def found(self, row: str, *, figure: str, holds: bool, target: str | None = None) -> None:
        """Add a row; its test fails at its end if one of its rows does not hold. `target`: the required figure."""
        wanted = self._rows[row].target if target is None else target
        self._rows[row] = Row(row=row, figure=figure, target=wanted, holds=holds)
        Console().print(f"{'holds ' if holds else 'MISSED'} {row}: {figure} (target: {wanted})", markup=False)
        self.write()
        if not holds:
            self.missed.append(f"{row}: {figure}; target: {wanted}")

    def not_run(self, row: str, why: str) -> None:
        """Record why a row has no result, unless it has one."""
        if self._rows[row].figure == "not run":
            self._rows[row].figure = f"not run: {why}"
            self.write()

    def write(self) -> None:
        write_json(self._path, list(self._rows.values()))
