"""Change the deciding modules one expression at a time, and see that a test notices each change (mutmut).

    make mutants                                              # all of them: hours
    make mutants MUTANTS="workers.schedule.slots.* shared.records.offsets.*"
    .venv/bin/python -m tests.mutation --report               # what the last run found

A change that no test notices is a survivor. It has to be named in `argued.toml`, with the reason why no test can notice
it or none need; what is named there and survives no more has to go.
"""

import os
import subprocess
import sys
import tomllib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from ops.usage_errors import run_app
from shared.process.lifetime import BAD_INPUT_STATUS, fail

ROOT: Final = Path(__file__).parents[2]
ARGUED: Final = Path(__file__).with_name("argued.toml")
_LOG: Final = ROOT / ".cache" / "mutants.log"  # mutmut redraws a line a hundred times a second
_UNNOTICED: Final = ("survived", "no tests", "suspicious")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """In `file` the lines `old` became `new`."""

    file: str
    old: str
    new: str

    def __str__(self) -> str:
        lines = [f"- {line}" for line in self.old.splitlines()] + [f"+ {line}" for line in self.new.splitlines()]
        return "\n".join([self.file, *lines])


def change_of(file: str, diff: str) -> Change:
    """Of a unified diff of one function."""
    lines = [line for line in diff.splitlines() if not line.startswith(("---", "+++", "@@"))]
    old, new = (
        "\n".join(line[1:].strip() for line in lines if line.startswith(sign) and line[1:].strip()) for sign in "-+"
    )
    return Change(file, old, new)


def argued(text: str) -> dict[Change, str]:
    """The changes that need no test, each with the reason. Raises `ValueError` where one has none, or stands twice."""
    found: dict[Change, str] = {}
    for each in tomllib.loads(text).get("mutant", ()):
        change = Change(each["file"], each["old"].strip(), each["new"].strip())
        if not each.get("why", "").strip():
            raise ValueError(f"{change.file}: {change.old!r} has no reason")
        if change in found:
            raise ValueError(f"{change.file}: {change.old!r} stands twice")
        found[change] = each["why"]
    return found


def verdict(
    unnoticed: Iterable[Change], tried: Collection[str], reasons: dict[Change, str]
) -> tuple[list[Change], list[Change]]:
    """The survivors that nobody has argued away; and what is argued away in the files `tried`, and survives no more."""
    survivors = set(unnoticed)
    stale = {change for change in reasons if change.file in tried and change not in survivors}
    return sorted(survivors - reasons.keys()), sorted(stale)


def _run(patterns: Collection[str], processes: int) -> None:
    """Raises `ChildProcessError` where mutmut could not try them."""
    _LOG.parent.mkdir(exist_ok=True)
    with _LOG.open("wb") as log:
        command = [sys.executable, "-m", "mutmut", "run", "--max-children", str(processes), *patterns]
        status = subprocess.run(command, cwd=ROOT, stdout=log, stderr=log, check=False).returncode
    if status:
        last = _LOG.read_text(errors="replace").replace("\r", "\n").strip().rsplit("\n", 1)[-1]
        raise ChildProcessError(f"mutmut ended with {status}: {last}; all it said is in {_LOG.relative_to(ROOT)}")


def _found(patterns: Collection[str]) -> tuple[list[Change], set[str], int]:
    """The changes that no test noticed, the files tried whole, and how many changes were tried."""
    from fnmatch import fnmatch

    from mutmut.mutation.data import SourceFileMutationData
    from mutmut.mutation.diff_apply import get_diff_for_mutant
    from mutmut.stats import status_by_exit_code
    from mutmut.utils.file_utils import walk_mutatable_files

    changes: list[Change] = []
    files: set[str] = set()
    num_tried = 0
    for path in walk_mutatable_files():
        data = SourceFileMutationData(path=path)
        data.load()
        asked = {
            name: status_by_exit_code[code]
            for name, code in data.exit_code_by_key.items()
            if not patterns or any(fnmatch(name, pattern) for pattern in patterns)
        }
        tried = {name: status for name, status in asked.items() if status != "not checked"}
        num_tried += len(tried)
        if data.exit_code_by_key and len(tried) == len(data.exit_code_by_key):
            files.add(str(path))
        changes += [
            change_of(str(path), get_diff_for_mutant(name, path=path))
            for name, status in tried.items()
            if status in _UNNOTICED
        ]
    return changes, files, num_tried


@app.command()
def main(
    patterns: Annotated[
        list[str] | None, typer.Argument(help="only mutants of such names: workers.schedule.slots.*")
    ] = None,
    report: Annotated[bool, typer.Option("--report", help="try nothing: what the last run found")] = False,
    processes: Annotated[int, typer.Option(min=1, help="so many at once")] = 2,
) -> None:
    """Status 1 where a change goes unnoticed, or is argued away that does not."""
    reasons = argued(ARGUED.read_text())
    os.chdir(ROOT)  # mutmut's own
    try:
        if not report:
            _run(patterns or (), processes)
    except ChildProcessError as error:
        raise typer.Exit(fail(str(error), BAD_INPUT_STATUS)) from None
    changes, files, num_tried = _found(patterns or ())
    unnoticed, stale = verdict(changes, files, reasons)
    console = Console(highlight=False, markup=False)
    for change in unnoticed:
        console.print(f"\nno test notices: {change}")
    for change in stale:
        console.print(f"\nargued.toml names what does not survive: {change}")
    console.print(f"\n{num_tried} tried, {len(changes) - len(unnoticed)} argued away, {len(unnoticed)} unnoticed")
    raise typer.Exit(1 if unnoticed or stale else 0)


if __name__ == "__main__":
    sys.exit(run_app(app))
