"""Tries every promise of docs/reliability.md, whole, and says of each whether it holds.

    make reliability
    python -m ops.reliability --only 5,13

Exit status 0 only where each was tried and holds. `reliability.json` has the rows and the machine.
"""

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ops.bench.environment import Environment, environment
from ops.bench.runner import check_writable, write_json
from ops.reliability.programs import PROGRAMS, run_program, run_tests
from ops.reliability.promises import By, choose
from ops.reliability.rows import Row, gather
from ops.usage_errors import run_app
from shared.errors import SettingsError
from shared.process import BAD_INPUT_STATUS, fail

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Found(Struct, frozen=True, kw_only=True):
    rows: list[Row]
    environment: Environment


@app.command()
def main(
    only: Annotated[str | None, typer.Option(metavar="ROW,…", help="only these rows of docs/reliability.md")] = None,
    json_path: Annotated[Path, typer.Option("--json", metavar="FILE", help="what is found")] = Path("reliability.json"),
) -> None:
    """Try every promise, whole. Status 1 where one was not tried or does not hold."""
    try:
        wanted = choose(only)
        check_writable(json_path)
    except SettingsError as error:
        raise typer.Exit(fail(str(error), BAD_INPUT_STATUS)) from None
    facts = environment(engine="fake; the model where a test names it", broker="kafka")
    with tempfile.TemporaryDirectory(prefix="reliability-") as folder:
        tested = [promise for promise in wanted if promise.by is By.TESTS]
        found = run_tests(tested, Path(folder)) if tested else []
        for promise in wanted:
            if promise.by is not By.TESTS:
                found.append(run_program(promise, PROGRAMS[promise.by], Path(folder)))
    rows = gather(found, wanted)
    write_json(json_path, Found(rows=rows, environment=facts))
    _print(rows, Console())
    raise typer.Exit(0 if all(row.holds for row in rows) else 1)


def _print(rows: list[Row], console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("row", "test", "figure", "target", "holds", "fraction"):
        table.add_column(title, overflow="fold", justify="right" if title == "fraction" else "left")
    for row in rows:
        said = (row.row, row.test, row.figure, row.target, "yes" if row.holds else "NO", f"{row.fraction:.3g}")
        table.add_row(*map(escape, said))
    console.print(table)
    console.print(f"{sum(row.holds for row in rows)} of {len(rows)} hold", highlight=False)


if __name__ == "__main__":
    sys.exit(run_app(app))
