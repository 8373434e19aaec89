"""What was found of each promise: by the tests, by a program's result, or nothing. Pure."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from tests.chaos.drill_table import DrillReport
from tests.chaos.faults.menu import MENU
from tests.chaos.faults.schedule import PARTITIONS, SLOW, Kind
from tests.chaos.network_table import NetworkReport
from tests.chaos.table import Report
from tests.reliability.finders import Rows
from tests.reliability.promises import Promise

_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (?P<file>[^\s:]+\.py)(?:::(?P<test>\w+))?.*$", re.MULTILINE)
_RAN: Final = (0, 1, 5)  # pytest's: all passed, some failed, none were there
_WHOLE_LEDGER: Final[Mapping[str, int]] = {Kind.WORKER: 50, Kind.GATEWAY: 20, Kind.REDIS: 10, Kind.REBALANCE: 20}
_WHOLE_REQUESTS: Final = 20_000
_LEAST_LEDGER: Final[Mapping[str, int]] = {Kind.WORKER: 5, Kind.GATEWAY: 3, Kind.REDIS: 2, Kind.BROKER: 2}
_LEAST_REQUESTS: Final = 2_000
_WHOLE_MENU: Final[Mapping[str, int]] = {
    Kind.BURST: 5,
    **dict.fromkeys((Kind.NOISE, *SLOW, *PARTITIONS, Kind.DISK_FULL, Kind.CLOCK_WRONG, Kind.HANG), 3),
    Kind.CLOCK_SKEW: 10,
}
_CELLS: Final = 18
_CELL_REQUESTS: Final = 500
_ROUNDS: Final = 20
_PROCESSES: Final = 4


class Row(Struct, frozen=True, kw_only=True):
    """As `pytest --reliability` writes it and `reliability.json` has it. `fraction` of the run that the target speaks
    of was made; `found` is when, in UTC."""

    row: str
    test: str
    figure: str
    target: str
    holds: bool
    fraction: float
    found: str = ""


def gather(found: Iterable[Row], wanted: Sequence[Promise], left: Collection[str] = ()) -> list[Row]:
    """What was found of the wanted promises, in their order; of which nothing was found, that it was not. What is
    `left` to be tried of some is a row of theirs that does not hold."""
    by_row: dict[str, list[Row]] = {}
    for row in found:
        by_row.setdefault(row.row, []).append(row)
    for promise in wanted:
        if promise.row in left and promise.row in by_row:
            by_row[promise.row].append(not_run(promise, "the rest of it: not run"))
    return [row for promise in wanted for row in by_row.get(promise.row) or [not_run(promise)]]


def not_run(promise: Promise, why: str = "not run") -> Row:
    return Row(row=promise.row, test=promise.test, figure=why, target=promise.target, holds=False, fraction=0.0)


# --- the tests


def unsaid(
    status: int, output: str, named: Mapping[str, Rows], found: Sequence[Row], wanted: Sequence[Promise]
) -> list[Row]:
    """A row that does not hold for each wanted promise of which a test failed without a word on it, by pytest's output:
    one that stopped before it had found anything, while its neighbours held. Where pytest itself was stopped, for all
    of them. `named`: the tests that were run, as `finders` has them."""
    if status not in _RAN:
        return [not_run(promise, f"pytest ended with status {status}: {_last_line(output)}") for promise in wanted]
    broken = {row.row for row in found if not row.holds}
    failed = [(match["file"], match["test"], match[0]) for match in _FAILED.finditer(output)]
    lines = {line: _rows_of(named, file, test) for file, test, line in failed}
    return [
        not_run(promise, line)
        for promise in wanted
        for line, rows in lines.items()
        if promise.row not in broken and (rows is None or promise.row in rows)
    ]


def _rows_of(named: Mapping[str, Rows], file: str, test: str | None) -> Rows:
    """Of one test, or of all in a file that could not be read at all."""
    rows: set[str] = set()
    for name, of_test in named.items():
        if name == f"{file}::{test}" or (test is None and name.startswith(f"{file}::")):
            if of_test is None:
                return None
            rows |= of_test
    return rows


# --- the programs


def with_status(row: Row, status: int, output: str) -> Row:
    """Whatever a program's result says, a status other than 0 says that it does not hold, and why stands last."""
    if status == 0:
        return row
    figure = f"{row.figure}; ended with status {status}: {_last_line(output)}"
    return replace(row, holds=False, figure=figure)


def _last_line(output: str) -> str:
    return next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "it said nothing")


def of_ledger(promise: Promise, report: Report) -> Row:
    """At least as many kills as a whole run has, and of the target's as many as `fraction` says. What was refused was
    not tried, so nothing may be."""
    counts = {row.kind: row.count for row in report.faults}
    shares = [report.requests / _WHOLE_REQUESTS, *(counts[kind] / most for kind, most in _WHOLE_LEDGER.items())]
    enough = report.requests >= _LEAST_REQUESTS and all(counts[kind] >= n for kind, n in _LEAST_LEDGER.items())
    killed = ", ".join(f"{counts[kind]} {kind}" for kind in _LEAST_LEDGER)
    return _row(
        promise,
        f"{report.requests:,} requests; killed {killed}; {counts[Kind.REBALANCE]} rebalances; "
        f"{_broken(report.invariants)}; last end {_ms(report.latest_ms)} after its deadline; {report.excused} excused"
        f"{_refused(report.refused)}",
        holds=report.holds and enough and not report.refused,
        fraction=min(1.0, *shares),
    )


def of_network(promise: Promise, report: NetworkReport) -> Row:
    """Nothing may be refused, as in the ledger."""
    broken = [row.cell for row in report.cells if not row.holds]
    latest = max((row.latest_ms for row in report.cells if row.latest_ms is not None), default=None)
    requests = sum(min(row.requests, _CELL_REQUESTS) for row in report.cells)
    refused = {row.cell: sum(row.refused.values()) for row in report.cells if row.refused}
    return _row(
        promise,
        f"{len(report.cells)} cells, {sum(row.requests for row in report.cells):,} requests; broken: "
        f"{', '.join(broken) or 'none'}; last end {_ms(latest)} after its deadline{_refused(refused)}",
        holds=report.holds and not broken and not refused and len(report.cells) == _CELLS,
        fraction=requests / (_CELLS * _CELL_REQUESTS),
    )


def of_roll(promise: Promise, report: Report) -> Row:
    """Failed is whatever did not end with an answer within its deadline and grace by the client's clock: refused, an
    error, late, or excused since its client was away."""
    rounds = next(row.count for row in report.faults if row.kind == Kind.ROLL)
    errors = sum(count for ending, count in report.answers.items() if " failed/" in ending)
    failed = errors + sum(report.refused.values()) + sum(report.invariants.values()) + report.excused
    fallback = sum(count for ending, count in report.answers.items() if not ending.startswith("model"))
    return _row(
        promise,
        f"{rounds} rounds, {rounds * _PROCESSES} restarts, {report.requests:,} requests: {failed} failed, {fallback} "
        f"by the fallback; clients told 4001 {report.farewells} times; last end {_ms(report.latest_ms)} after its "
        "deadline",
        holds=report.holds and failed == 0 and rounds > 0 and report.farewells > 0,
        fraction=min(1.0, rounds / _ROUNDS),
    )


def of_menu(promise: Promise, report: Report) -> Row:
    """Each of them at least once, and as many as `fraction` says; each of what they come upon was met, and nothing
    refused."""
    counts = {row.kind: row.count for row in report.faults}
    share = min(counts[kind] / most for kind, most in _WHOLE_MENU.items())
    unmet = [name for name, count in report.met.items() if not count]
    struck = ", ".join(f"{counts[kind]} {kind}" for kind in _WHOLE_MENU)
    return _row(
        promise,
        f"{report.requests:,} requests; {struck}; {_broken(report.invariants)}; last end {_ms(report.latest_ms)} after "
        f"its deadline; {report.excused} excused{_refused(report.refused)}"
        f"{'; not met: ' * bool(unmet)}{', '.join(unmet)}",
        holds=report.holds and share > 0 and bool(report.met) and not unmet and not report.refused,
        fraction=min(1.0, share),
    )


def of_alerts(promise: Promise, report: DrillReport) -> Row:
    """Of all that are to wake somebody."""
    wanted = {dish.kind.value for dish in MENU if dish.alert is not None}
    in_time = {row.fault: row.fired_s for row in report.faults if row.fired_s is not None and row.holds}
    silent = sorted(wanted & {row.fault for row in report.faults} - in_time.keys())
    slowest = max(in_time.values(), default=None)
    return _row(
        promise,
        f"{len(in_time)} of {len(wanted)} fired, the last "
        f"{'–' if slowest is None else f'{slowest:.0f} s'} after its fault"
        + (f"; not: {', '.join(silent)}" if silent else ""),
        holds=report.holds and not silent and bool(in_time),
        fraction=len(report.faults) / len(wanted),
    )


def _row(promise: Promise, figure: str, *, holds: bool, fraction: float) -> Row:
    return Row(
        row=promise.row,
        test=promise.test,
        figure=figure,
        target=promise.target,
        holds=holds,
        fraction=round(fraction, 4),
    )


def _broken(invariants: Mapping[str, int]) -> str:
    broken = [f"{name} {count}" for name, count in invariants.items() if count]
    return f"broken: {', '.join(broken) or 'none'}"


def _refused(counts: Mapping[str, int]) -> str:
    """What is said of requests that were refused, by code or cell; nothing where none was."""
    return f"; {sum(counts.values()):,} refused: {', '.join(counts)}" if counts else ""


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f} ms"
