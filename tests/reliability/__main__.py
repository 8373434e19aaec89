"""Tries every promise of docs/reliability.md, whole, and says of each whether it holds.

    make reliability
    python -m tests.reliability --only 5,13
    python -m tests.reliability --keep              # goes on where an earlier one was interrupted, or did not hold

Exit status 0 only where each was tried whole and holds. `reliability.json` has the rows and the machine; it is written
anew after each test file and program, so that whatever ends it leaves what was found.
"""

import signal
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ops.measure.environment import environment
from ops.measure.runner import INTERRUPTED_STATUS, check_writable, write_json
from ops.usage_errors import run_app
from shared.errors import SettingsError
from shared.process.lifetime import BAD_INPUT_STATUS, fail
from tests.reliability.programs import Step, steps
from tests.reliability.promises import Promise, choose
from tests.reliability.result import Found, check_same_machine, in_order, kept, reached, to_try
from tests.reliability.rows import Row, gather

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    only: Annotated[str | None, typer.Option(metavar="ROW,…", help="only these rows of docs/reliability.md")] = None,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="keep FILE's other rows; without --only try what does not hold there, whole"),
    ] = False,
    json_path: Annotated[Path, typer.Option("--json", metavar="FILE", help="what is found")] = Path("reliability.json"),
) -> None:
    """Try every promise, whole. Status 1 where one was not or does not hold, 130 where it was interrupted."""
    facts = environment(engine="fake; the model where a test names it", broker="kafka")
    found: list[Row] = []
    try:
        wanted: Sequence[Promise] = choose(only)
        check_writable(json_path)
        former = _read(json_path) if keep else None
        if former is not None:
            check_same_machine(former.environment, facts)
            wanted = to_try(wanted, former, chosen=only is not None)
            found = kept(former, wanted)
    except SettingsError as error:
        raise typer.Exit(fail(str(error), BAD_INPUT_STATUS)) from None
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A shell's background job ignores it, and so would every program that is started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="reliability-") as folder:
        result = Found(complete=False, rows=in_order([*found, *gather([], wanted)]), environment=facts)
        write_json(json_path, result)
        left = steps(wanted, Path(folder))
        try:
            while left:
                result = msgspec.structs.replace(result, rows=_after(left, found, wanted))
                write_json(json_path, result)
            result = msgspec.structs.replace(result, complete=True)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
    write_json(json_path, result)
    _print(result.rows, Console())
    if not result.complete:
        raise typer.Exit(INTERRUPTED_STATUS)
    raise typer.Exit(0 if all(map(reached, result.rows)) else 1)


def _after(left: list[Step], found: list[Row], wanted: Sequence[Promise]) -> list[Row]:
    """Take the next step: all rows as they stand then."""
    fresh, now = left.pop(0).run(), datetime.now(UTC).isoformat(timespec="seconds")
    found += [msgspec.structs.replace(row, found=now) for row in fresh]
    tried = {promise.row for promise in wanted}
    to_come = frozenset[str]().union(*(step.rows for step in left))
    return in_order([*(row for row in found if row.row not in tried), *gather(found, wanted, to_come)])


def _read(path: Path) -> Found | None:
    """Raises `SettingsError` for a file that is something else."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Found)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise SettingsError(f"--keep: {path} is no result of make reliability ({error}); leave out --keep") from None


def _print(rows: Sequence[Row], console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("row", "test", "figure", "target", "holds", "fraction"):
        table.add_column(title, overflow="fold", justify="right" if title == "fraction" else "left")
    for row in rows:
        said = (row.row, row.test, row.figure, row.target, "yes" if row.holds else "NO", f"{row.fraction:.3g}")
        table.add_row(*map(escape, said))
    console.print(table)
    in_part = sum(row.holds and not reached(row) for row in rows)
    told = f", {in_part} of them tried in part" if in_part else ""
    console.print(f"{sum(row.holds for row in rows)} of {len(rows)} hold{told}", highlight=False)


if __name__ == "__main__":
    sys.exit(run_app(app))
