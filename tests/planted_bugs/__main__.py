"""Plants each bug in a copy of the code, never in the code itself, and runs the tests that must catch it.

    make planted-bugs
    python -m tests.planted_bugs --only slot --only seq --json planted-bugs.json

First the named tests run without a bug: one that fails anyway would catch anything. A bug counts as caught where a test
fails, not where the code no longer begins.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from ops.measure.runner import check_writable, write_json
from ops.usage_errors import run_app
from shared.errors import SettingsError
from shared.process.lifetime import BAD_INPUT_STATUS, fail
from tests.planted_bugs.bug import Bug
from tests.planted_bugs.bugs import BUGS, find_misplaced

ROOT: Final = Path(__file__).parents[2]
_COPIED: Final = ("docs", "gateway", "ops", "shared", "workers", "tests")
_LIMIT_S: Final = 300
_ALL_LIMIT_S: Final = 1_800
_FAILED: Final = re.compile(r"^FAILED \S+?::(.+?)(?: - .*)?$", re.MULTILINE)
_PASSED_STATUS: Final = 0
_FAILED_STATUS: Final = 1

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Verdict(StrEnum):
    CAUGHT = "caught"
    MISSED = "missed"  # every test passed
    BROKEN = "broken"  # pytest could not run the tests


@dataclass(frozen=True, slots=True)
class Outcome:
    verdict: Verdict
    by: str
    seconds: float


class Planted(Struct, frozen=True, kw_only=True):
    """One bug as `--json` has it: `by` is the test that failed, or what was said where none did."""

    bug: str
    file: str
    verdict: Verdict
    by: str
    seconds: float


def judge(status: int, output: str, seconds: float) -> Outcome:
    """What pytest's exit status and output say of a bug."""
    if status == _PASSED_STATUS:
        return Outcome(Verdict.MISSED, "", seconds)
    failed = _FAILED.search(output)
    if status == _FAILED_STATUS and failed is not None:
        return Outcome(Verdict.CAUGHT, failed[1], seconds)
    last = next((line for line in reversed(output.splitlines()) if line.strip()), "no output")
    return Outcome(Verdict.BROKEN, last, seconds)


def run_tests(copy: Path, tests: Collection[str], *, limit_s: int = _LIMIT_S) -> Outcome:
    """Run these tests in the copy, up to the first that fails."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header", *tests]
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "400"}
    start = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return Outcome(Verdict.CAUGHT, f"nothing ends within {limit_s} s", time.monotonic() - start)
    return judge(done.returncode, done.stdout + done.stderr, time.monotonic() - start)


def try_bug(copy: Path, bug: Bug) -> Outcome:
    """Plant the bug in the copy, run its tests, take it out again."""
    file = copy / bug.file
    text = file.read_text()
    file.write_text(bug.planted_in(text))
    try:
        return run_tests(copy, bug.tests)
    finally:
        file.write_text(text)


def copy_code(target: Path) -> None:
    for name in _COPIED:
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__", ".hypothesis"))
    shutil.copy(ROOT / "pyproject.toml", target)


@app.command()
def main(
    only: Annotated[list[str] | None, typer.Option(help="only bugs whose name holds this (may be repeated)")] = None,
    json_path: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="write what became of each")] = None,
) -> None:
    """Plant each bug in a copy of the code and see that a test catches it. Status 1 where one is not caught."""
    try:
        check_writable(json_path)
    except SettingsError as error:
        raise typer.Exit(fail(str(error), BAD_INPUT_STATUS)) from None
    misplaced = find_misplaced(ROOT)
    if misplaced:
        raise typer.Exit(fail("\n".join(misplaced), BAD_INPUT_STATUS))
    chosen = [bug for bug in BUGS if not only or any(part in bug.name for part in only)]
    if not chosen:
        raise typer.Exit(fail(f"no bug's name holds {' or '.join(only or ())}", BAD_INPUT_STATUS))
    raise typer.Exit(_run(chosen, Console(), json_path))


def _run(bugs: Sequence[Bug], console: Console, json_path: Path | None) -> int:
    with tempfile.TemporaryDirectory(prefix="planted-bugs-") as folder:
        copy = Path(folder)
        copy_code(copy)
        control = run_tests(copy, sorted({test for bug in bugs for test in bug.tests}), limit_s=_ALL_LIMIT_S)
        if control.verdict is not Verdict.MISSED:
            return fail(f"without any bug the tests do not pass: {control.by}", 1)
        console.print(f"without a bug: all pass, {control.seconds:.1f} s")
        outcomes = []
        for bug in bugs:
            outcomes.append(try_bug(copy, bug))
            console.print(f"{outcomes[-1].verdict}: {bug.name}", highlight=False)
    _print(bugs, outcomes, console)
    write_json(json_path, planted(bugs, outcomes))
    return 0 if all(outcome.verdict is Verdict.CAUGHT for outcome in outcomes) else 1


def planted(bugs: Sequence[Bug], outcomes: Sequence[Outcome]) -> list[Planted]:
    return [
        Planted(bug=bug.name, file=bug.file, verdict=outcome.verdict, by=outcome.by, seconds=round(outcome.seconds, 2))
        for bug, outcome in zip(bugs, outcomes, strict=True)
    ]


def _print(bugs: Sequence[Bug], outcomes: Sequence[Outcome], console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("bug", "file", "caught by", "seconds"):
        table.add_column(title, overflow="fold", justify="right" if title == "seconds" else "left")
    for bug, outcome in zip(bugs, outcomes, strict=True):
        by = outcome.by if outcome.verdict is Verdict.CAUGHT else f"NOT CAUGHT: {outcome.verdict} {outcome.by}"
        table.add_row(bug.name, bug.file, by.replace("[", "\\["), f"{outcome.seconds:.1f}")
    console.print(table)
    caught = sum(outcome.verdict is Verdict.CAUGHT for outcome in outcomes)
    console.print(f"{caught} of {len(bugs)} caught")


if __name__ == "__main__":
    sys.exit(run_app(app))
