"""What is found of each promise is gathered; what was not tried, or stopped before it found anything, does not hold."""

import re
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.measure.environment import Environment
from tests.chaos.drill_table import DrillReport, DrillRow
from tests.chaos.faults.cells import ALL
from tests.chaos.faults.menu import MENU
from tests.chaos.faults.schedule import Kind
from tests.chaos.network_table import CellRow, NetworkReport
from tests.chaos.run import ChaosOptions
from tests.chaos.table import Conditions, FaultRow, Report
from tests.reliability.finders import Rows
from tests.reliability.programs import PROGRAMS
from tests.reliability.promises import PROMISES, By, choose
from tests.reliability.rows import (
    Row,
    gather,
    of_alerts,
    of_ledger,
    of_menu,
    of_network,
    of_roll,
    unsaid,
    with_status,
)

ROOT = Path(__file__).parents[3]
MACHINE = Environment(
    date="", cpu="", cores=2, load_1min=0.0, system="", python="", versions={}, engine="fake", broker="Apache Kafka"
)
PROMISE = {promise.row: promise for promise in PROMISES}


def row(number: str, *, holds: bool = True, test: str = "a test") -> Row:
    return Row(row=number, test=test, figure="0", target="0", holds=holds, fraction=1.0)


def test_the_rows_are_those_of_the_table_and_each_has_something_that_tries_it() -> None:
    table = re.findall(r"^\| (\d+) \|", (ROOT / "docs" / "reliability.md").read_text(), re.MULTILINE)
    assert [promise.row for promise in PROMISES] == table
    assert {promise.by for promise in PROMISES} == set(By) == {*PROGRAMS, By.TESTS}


@given(st.lists(st.tuples(st.sampled_from([promise.row for promise in PROMISES]), st.booleans())))
def test_every_wanted_promise_has_a_row_and_only_what_was_found_holds(tried: list[tuple[str, bool]]) -> None:
    """In the table's order, each that was found as it was found."""
    found = [row(number, holds=holds) for number, holds in tried]
    rows = gather(found, PROMISES)
    numbers = [promise.row for promise in PROMISES]
    assert sorted(rows, key=lambda one: numbers.index(one.row)) == rows
    assert {one.row for one in rows} == set(numbers)
    for number in numbers:
        of_number = [one for one in rows if one.row == number]
        if any(one.row == number for one in found):
            assert of_number == [one for one in found if one.row == number]
        else:
            assert [(one.figure, one.holds, one.fraction) for one in of_number] == [("not run", False, 0.0)]


def test_what_was_not_wanted_is_left_out() -> None:
    assert [one.row for one in gather([row("1"), row("5")], choose("5"))] == ["5"]


def test_of_what_is_left_to_be_tried_the_rest_does_not_hold() -> None:
    """Though all that was found of it by then does."""
    rows = gather([row("1"), row("5")], choose("1,5,9"), {"5", "9"})
    assert [(one.row, one.figure, one.holds) for one in rows] == [
        ("1", "0", True),
        ("5", "0", True),
        ("5", "the rest of it: not run", False),
        ("9", "not run", False),
    ]


NAMED: dict[str, Rows] = {
    "tests/a.py::test_w": {"16", "17"},
    "tests/b.py::test_x": {"17"},
    "tests/b.py::test_y": {"16"},
    "tests/c.py::test_z": None,
}


@pytest.mark.parametrize(
    ("status", "output", "found", "not_holding"),
    [
        (0, "3 passed\n", [row("16"), row("17")], {}),
        (1, "FAILED tests/b.py::test_x[1 2] - RuntimeError: no\n", [row("16"), row("17")], {"17": "FAILED tests/b.py"}),
        (1, "ERROR tests/a.py - ImportError\n", [row("17")], {"16": "ERROR tests/a.py", "17": "ERROR tests/a.py"}),
        (1, "ERROR tests/b.py::test_y - OSError\n", [row("17")], {"16": "ERROR tests/b.py"}),
        (1, "FAILED tests/b.py::test_x - Failed: told\n", [row("17", holds=False)], {}),
        (1, "FAILED tests/c.py::test_z\n", [row("16")], {"16": "FAILED tests/c.py", "17": "FAILED tests/c.py"}),
        (5, "no tests ran\n", [], {}),
        (-9, "....\n", [row("16"), row("17")], {"16": "pytest ended with status -9", "17": "pytest ended with status"}),
        (4, "", [], {"16": "it said nothing", "17": "it said nothing"}),
    ],
)
def test_a_test_that_stops_without_a_word_does_not_hold(
    status: int, output: str, found: list[Row], not_holding: dict[str, str]
) -> None:
    """Though its neighbours of the same row held; nor does anything where pytest did not end by itself."""
    rows = unsaid(status, output, NAMED, found, choose("16,17"))
    assert {one.row for one in rows} == set(not_holding)
    assert not any(one.holds for one in rows)
    assert all(not_holding[one.row] in one.figure for one in rows)


def report(*, holds: bool = True, requests: int = 2_400, **counts: int) -> Report:
    kills = {Kind.WORKER: 6, Kind.GATEWAY: 4, Kind.REDIS: 2, Kind.BROKER: 2, Kind.REBALANCE: 2, Kind.ROLL: 20}
    faults = dict.fromkeys(Kind, 0) | kills | {Kind(kind.replace("_", "-")): count for kind, count in counts.items()}
    return Report(
        holds=holds,
        invariants={"lost": 0 if holds else 1, "late": 0},
        requests=requests,
        accepted=requests,
        answers={"model incomplete/max_output_tokens": requests - 10, "faq completed/stop": 10},
        refused={},
        asked_again=3,
        told_anew=1,
        recovered=5,
        not_recovered=0,
        farewells=30,
        latest_ms=203.4,
        excused=0,
        excused_in_time_at_gateway=0,
        excused_widest_ms=0.0,
        faults=[FaultRow(kind=kind, count=count, back_s=None) for kind, count in faults.items()],
        conditions=Conditions(
            seed=1,
            minutes=2.0,
            rate=20.0,
            clients=40,
            brokers=3,
            silence_s=1.0,
            client_lag_s=0.0,
            environment=MACHINE,
        ),
    )


def test_the_ledgers_row_says_how_much_of_the_target_it_was() -> None:
    found = of_ledger(PROMISE["4"], report())
    assert (found.holds, found.fraction) == (True, 0.1)  # 2 of 20 rebalances
    assert "2,400 requests; killed 6 worker, 4 gateway, 2 redis, 2 broker; 2 rebalances; broken: none" in found.figure
    whole = of_ledger(PROMISE["4"], report(requests=20_000, worker=50, gateway=20, redis=10, broker=9, rebalance=21))
    assert (whole.holds, whole.fraction) == (True, 1.0)


@pytest.mark.parametrize("less", [{"worker": 4}, {"gateway": 2}, {"redis": 1}, {"broker": 1}, {"requests": 1_999}])
def test_a_ledger_of_too_few_kills_does_not_hold(less: dict[str, int]) -> None:
    assert not of_ledger(PROMISE["4"], report(**less)).holds


def test_where_requests_were_refused_no_row_of_a_ledger_holds() -> None:
    """A run that refuses nearly all of them breaks no invariant, and shows nothing."""
    refused = {"shutting_down": 2, "kafka_unavailable": 1}
    run = _changed(report(**ALL_OF_THE_MENU, **PARTITIONED), met=MET, refused=refused)
    cells = network()
    cells.cells[3] = msgspec.structs.replace(cells.cells[3], refused=refused)
    for found in (of_ledger(PROMISE["4"], run), of_menu(PROMISE["26"], run), of_network(PROMISE["5"], cells)):
        assert not found.holds
        assert "; 3 refused: " in found.figure


def test_the_ledgers_program_is_the_whole_of_its_figure() -> None:
    """If every fault is carried out that it asks for, and every request is asked."""
    (arguments,) = [program.arguments for by, program in PROGRAMS.items() if by is By.LEDGER]
    assert arguments[:3] == ("ops.cli", "chaos", "run")
    given = dict(zip(arguments[3::2], arguments[4::2], strict=True))
    minutes = float(given["--minutes"])
    plan = ChaosOptions(
        seed=int(given["--seed"]),
        minutes=minutes,
        rate=20.0,
        clients=40,
        brokers=int(given["--brokers"]),
        faults=given["--faults"],
        json_path=None,
    ).plan()
    counts = Counter(fault.kind for fault in plan)
    asked = report(requests=round(minutes * 60 * 20), **{kind.replace("-", "_"): counts[kind] for kind in Kind})
    assert (of_ledger(PROMISE["4"], asked).holds, of_ledger(PROMISE["4"], asked).fraction) == (True, 1.0)


def test_a_broken_invariant_is_named() -> None:
    found = of_ledger(PROMISE["4"], report(holds=False))
    assert not found.holds
    assert "broken: lost 1" in found.figure


def test_a_deployment_fails_by_anything_but_an_answer_in_time() -> None:
    """What may be excused elsewhere is not here."""
    assert of_roll(PROMISE["13"], report()).figure.startswith("20 rounds, 80 restarts, 2,400 requests: 0 failed, 10 by")
    assert of_roll(PROMISE["13"], report()).holds
    assert of_roll(PROMISE["13"], report(roll=5)).fraction == 0.25
    for spoilt in (
        report(holds=False),
        report(roll=0),
        _changed(report(), refused={"shutting_down": 1}),
        _changed(report(), excused=1),
        _changed(report(), farewells=0),
        _changed(report(), answers={"model failed/internal": 1}),
    ):
        assert not of_roll(PROMISE["13"], spoilt).holds


def _changed(found: Report, **fields: object) -> Report:
    return Report(**{**{name: getattr(found, name) for name in found.__struct_fields__}, **fields})


def network(*broken: str, cells: int = 18, requests: int = 500) -> NetworkReport:
    rows = [
        CellRow(
            cell=str(cell),
            holds=str(cell) not in broken,
            invariants={},
            requests=requests,
            accepted=requests,
            answers={},
            refused={},
            latest_ms=-5.0 + number,
            excused=0,
            excused_widest_ms=0.0,
            recovered=0,
            not_recovered=0,
            asked_again=0,
            faults=1,
            cut=0,
            carried_bytes=1,
            back_s=0.0,
        )
        for number, cell in enumerate(ALL[:cells])
    ]
    return NetworkReport(seed=1, holds=not broken, cells=rows, environment=MACHINE)


def test_the_networks_row_holds_where_all_cells_do() -> None:
    whole = of_network(PROMISE["5"], network())
    assert (whole.holds, whole.fraction) == (True, 1.0)
    assert whole.figure == "18 cells, 9,000 requests; broken: none; last end 12 ms after its deadline"
    assert of_network(PROMISE["5"], network(requests=50)).fraction == 0.1
    assert not of_network(PROMISE["5"], network(cells=17)).holds
    broken = of_network(PROMISE["5"], network("reset:kafka"))
    assert not broken.holds
    assert "broken: reset:kafka" in broken.figure


MET = {"records of noise": 900, "dead letters": 300}
CLOCKS = {"clock_skew": 10, "clock_wrong": 3}
ALL_OF_THE_MENU = {"burst": 6, "noise": 5, "disk_full": 3, "slow_kafka": 4, "slow_redis": 4, "hang": 4, **CLOCKS}
PARTITIONED = {"partition": 3, "partition_out": 3, "partition_in": 3}


def test_the_menus_row_holds_where_each_fault_was_struck_and_came_upon_something() -> None:
    counts = ALL_OF_THE_MENU | PARTITIONED
    whole = of_menu(PROMISE["26"], _changed(report(**counts), met=MET))
    assert (whole.holds, whole.fraction) == (True, 1.0)
    assert "6 burst, 5 noise" in whole.figure
    some = of_menu(PROMISE["26"], _changed(report(**counts | {"partition_in": 1}), met=MET))
    assert (some.holds, some.fraction) == (True, 0.3333)
    for spoilt in (
        _changed(report(**counts | {"partition_in": 0}), met=MET),
        _changed(report(holds=False, **counts), met=MET),
        report(**counts),
        _changed(report(**counts), met=MET | {"dead letters": 0}),
    ):
        assert not of_menu(PROMISE["26"], spoilt).holds


def test_what_a_fault_did_not_come_upon_is_named() -> None:
    found = _changed(report(**ALL_OF_THE_MENU, **PARTITIONED), met=MET | {"dead letters": 0})
    assert of_menu(PROMISE["26"], found).figure.endswith("; not met: dead letters")


def drill(fired_s: float | None = 20.0, *, left_out: int = 0) -> DrillReport:
    """Of all faults that wake somebody, the first one's alert after so long."""
    waking = [dish for dish in MENU if dish.alert is not None][: None if not left_out else -left_out]
    rows = [
        DrillRow(fault=dish.kind.value, alert=str(dish.alert), fired_s=10.0 if number else fired_s, others={})
        for number, dish in enumerate(waking)
    ]
    return DrillReport(holds=all(row.holds for row in rows), faults=rows, environment=MACHINE)


def test_the_alerts_row_holds_where_each_fires_in_time() -> None:
    whole = of_alerts(PROMISE["24"], drill())
    assert (whole.holds, whole.fraction) == (True, 1.0)
    assert whole.figure.endswith("fired, the last 20 s after its fault")
    assert of_alerts(PROMISE["24"], drill(left_out=1)).fraction < 1.0
    for late in (None, 60.5):
        found = of_alerts(PROMISE["24"], drill(late))
        assert not found.holds
        assert found.figure.endswith("; not: worker")


def test_a_program_that_fails_shows_nothing_whatever_it_wrote() -> None:
    """A worker that ended by itself, say, while the ledger found nothing."""
    assert with_status(row("13"), 0, "all fine\n") == row("13")
    failed = with_status(row("13"), 1, "a table\nworker-0 ended with status 1\n\n")
    assert (failed.holds, failed.figure) == (False, "0; ended with status 1: worker-0 ended with status 1")
    assert not with_status(row("13"), -9, "").holds
