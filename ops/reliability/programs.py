"""The programs that try the promises, one after the other: what they say goes to stderr, what they found is read."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from ops.chaos.network_table import NetworkReport
from ops.chaos.table import Report
from ops.reliability.promises import By, Promise
from ops.reliability.rows import (
    OverloadResult,
    PlantedBug,
    Row,
    not_run,
    of_ledger,
    of_network,
    of_overload,
    of_planted,
    of_roll,
    rows_named,
    unsaid,
    with_status,
)

ROOT: Final = Path(__file__).parents[2]
_CLI: Final = ("ops.cli",)


@dataclass(frozen=True, slots=True)
class Program:
    """`python -m arguments --json FILE`; `read` makes the row of what is in FILE."""

    arguments: tuple[str, ...]
    read: Callable[[Promise, bytes], Row]


PROGRAMS: Final = {
    By.LEDGER: Program(
        (*_CLI, "chaos", "run", "--seed", "1", "--minutes", "2", "--brokers", "3"),
        lambda promise, data: of_ledger(promise, msgspec.json.decode(data, type=Report)),
    ),
    By.NETWORK: Program(
        (*_CLI, "chaos", "network", "--seed", "1", "--requests", "500"),
        lambda promise, data: of_network(promise, msgspec.json.decode(data, type=NetworkReport)),
    ),
    By.ROLL: Program(
        (*_CLI, "chaos", "run", "--seed", "1", "--minutes", "5", "--faults", "roll=20"),
        lambda promise, data: of_roll(promise, msgspec.json.decode(data, type=Report)),
    ),
    By.PLANTED: Program(
        ("ops.planted_bugs",),
        lambda promise, data: of_planted(promise, msgspec.json.decode(data, type=list[PlantedBug])),
    ),
    By.OVERLOAD: Program(
        (*_CLI, "bench", "overload", "--broker", "kafka"),
        lambda promise, data: of_overload(promise, msgspec.json.decode(data, type=OverloadResult)),
    ),
}


def run_program(promise: Promise, program: Program, folder: Path) -> Row:
    """One that fails, or ends without a result, has not shown that its promise holds."""
    result = folder / f"{promise.row}.json"
    status, output = _run([*program.arguments, "--json", str(result)])
    row = program.read(promise, result.read_bytes()) if result.exists() else not_run(promise)
    return with_status(row, status, output)


def run_tests(wanted: Sequence[Promise], folder: Path) -> list[Row]:
    """The test files that find something of the wanted promises, whole. `folder` is for their notes."""
    rows = {promise.row for promise in wanted}
    named = {
        str(file.relative_to(ROOT)): rows_named(file.read_text())
        for file in sorted((ROOT / "tests").rglob("test_*.py"))
    }
    files = [file for file, of_file in named.items() if of_file is None or of_file & rows]
    if not files:
        return []
    notes = folder / "rows.jsonl"
    notes.touch()
    status, output = _run(["pytest", "--reliability", str(notes), *files])
    decode = msgspec.json.Decoder(Row).decode
    found = [row for row in map(decode, notes.read_bytes().splitlines()) if row.row in rows]
    return [*found, *unsaid(status, output, named, found, wanted)]


def _run(arguments: Sequence[str]) -> tuple[int, str]:
    """Its exit status, and all that it said."""
    lines: list[str] = []
    command = [sys.executable, "-m", *arguments]
    print(f"$ {' '.join(command)}", file=sys.stderr, flush=True)
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None, "asked for"
        for line in process.stdout:
            lines.append(line)
            sys.stderr.write(line)
            sys.stderr.flush()
    return process.returncode, "".join(lines)
