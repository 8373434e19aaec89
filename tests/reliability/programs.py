"""The programs that try the promises, one after the other: what they say goes to stderr, what they found is read."""

import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from tests.chaos.drill_table import DrillReport
from tests.chaos.network_table import NetworkReport
from tests.chaos.table import Report
from tests.reliability.finders import Rows, finders
from tests.reliability.promises import By, Promise
from tests.reliability.rows import (
    Row,
    not_run,
    of_alerts,
    of_ledger,
    of_menu,
    of_network,
    of_roll,
    unsaid,
    with_status,
)

ROOT: Final = Path(__file__).parents[2]
# More of each than the target has: one is left out where its group is not up again in time.
WHOLE_LEDGER: Final = (
    "worker=52,rebalance=21,gateway=24,redis=12,broker=8,"
    "cut=300,latency=8,timeout=8,reset=8,slow-close=8,bandwidth=8,slicer=8"
)
WHOLE_MENU: Final = (
    "burst=6,slow-kafka=4,slow-redis=4,partition=3,partition-out=3,partition-in=3,noise=6,disk-full=4,"
    "clock-skew=11,clock-wrong=4,hang=4"
)
_CLI: Final = ("ops.cli",)
_PATIENCE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Program:
    """`python -m arguments --json FILE`; `read` makes the row of what is in FILE."""

    arguments: tuple[str, ...]
    read: Callable[[Promise, bytes], Row]


PROGRAMS: Final = {
    By.LEDGER: Program(
        (*_CLI, "chaos", "run", "--seed", "1", "--minutes", "17", "--brokers", "3", "--faults", WHOLE_LEDGER),
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
    By.MENU: Program(
        (*_CLI, "chaos", "run", "--seed", "1", "--minutes", "3", "--faults", WHOLE_MENU),
        lambda promise, data: of_menu(promise, msgspec.json.decode(data, type=Report)),
    ),
    By.ALERTS: Program(
        (*_CLI, "chaos", "alerts", "--seed", "1"),
        lambda promise, data: of_alerts(promise, msgspec.json.decode(data, type=DrillReport)),
    ),
}


@dataclass(frozen=True, slots=True)
class Step:
    """Something to run, and the rows that it finds something of."""

    rows: frozenset[str]
    run: Callable[[], list[Row]]


def steps(wanted: Sequence[Promise], folder: Path) -> list[Step]:
    """All that tries the wanted promises: first the test files, each by itself, then the programs. `folder` is for what
    they write."""
    sources = {str(file.relative_to(ROOT)): file.read_text() for file in sorted((ROOT / "tests").rglob("*.py"))}
    tested = [promise for promise in wanted if promise.by is By.TESTS]
    files: dict[str, dict[str, Rows]] = {}
    for test, rows in finders(sources).items():
        if rows is None or any(promise.row in rows for promise in tested):
            files.setdefault(test.partition("::")[0], {})[test] = rows
    return [
        *(
            Step(rows_of(named, tested), partial(_run_tests, named, tested, folder / f"{number}.jsonl"))
            for number, named in enumerate(files.values())
            if tested
        ),
        *(
            Step(frozenset({promise.row}), partial(_run_program, promise, PROGRAMS[promise.by], folder))
            for promise in wanted
            if promise.by is not By.TESTS
        ),
    ]


def rows_of(named: Mapping[str, Rows], wanted: Sequence[Promise]) -> frozenset[str]:
    return frozenset(
        promise.row for promise in wanted for rows in named.values() if rows is None or promise.row in rows
    )


def _run_program(promise: Promise, program: Program, folder: Path) -> list[Row]:
    """One that fails, or ends without a result, has not shown that its promise holds."""
    result = folder / f"{promise.row}.json"
    status, output = _run([*program.arguments, "--json", str(result)])
    row = program.read(promise, result.read_bytes()) if result.exists() else not_run(promise)
    return [with_status(row, status, output)]


def _run_tests(named: Mapping[str, Rows], wanted: Sequence[Promise], notes: Path) -> list[Row]:
    """These tests, whole. What they find goes to `notes`, also of rows that are not wanted."""
    notes.touch()
    status, output = _run(["pytest", "--reliability", str(notes), *named])
    rows = rows_of(named, wanted)
    decode = msgspec.json.Decoder(Row).decode
    found = [row for row in map(decode, notes.read_bytes().splitlines()) if row.row in rows]
    return [*found, *unsaid(status, output, named, found, [promise for promise in wanted if promise.row in rows])]


def _run(arguments: Sequence[str]) -> tuple[int, str]:
    """Its exit status, and all that it said. Ctrl-C ends it before us: it has processes of its own to end."""
    lines: list[str] = []
    command = [sys.executable, "-m", *arguments]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
    ) as process:
        assert process.stdout is not None, "asked for"
        try:
            print(f"$ {' '.join(command)}", file=sys.stderr, flush=True)
            for line in process.stdout:
                lines.append(line)
                sys.stderr.write(line)
                sys.stderr.flush()
        except KeyboardInterrupt:
            _end(process)
            raise
    return process.returncode, "".join(lines)


def _end(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=_PATIENCE_S)
    except (KeyboardInterrupt, subprocess.TimeoutExpired):
        process.kill()
