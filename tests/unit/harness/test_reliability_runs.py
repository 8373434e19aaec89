"""`make reliability`: what it runs of what was asked for, what it keeps, and how it ends."""

import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from ops.measure.environment import Environment
from shared.errors import SettingsError
from tests.reliability.finders import Rows, finders
from tests.reliability.programs import rows_of, steps
from tests.reliability.promises import PROMISES, choose
from tests.reliability.result import Found, check_same_machine, in_order, kept, reached, to_try
from tests.reliability.rows import Row

ROOT = Path(__file__).parents[3]
MACHINE = Environment(
    date="", cpu="", cores=2, load_1min=0.0, system="", python="", versions={}, engine="fake", broker="Apache Kafka"
)


def row(number: str, *, holds: bool = True, test: str = "a test") -> Row:
    return Row(row=number, test=test, figure="0", target="0", holds=holds, fraction=1.0)


def test_some_rows_are_chosen_in_the_tables_order() -> None:
    assert [promise.row for promise in choose("13, 5,")] == ["5", "13"]
    assert choose(None) == PROMISES


@pytest.mark.parametrize("only", ["", ",", "99", "5;13", "7"])
def test_rows_that_there_are_not_are_named(only: str) -> None:
    with pytest.raises(SettingsError, match=r"--only .*: no such row; rows: 1, 2, 3"):
        choose(only)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "99"], "--only 99: no such row"),
        (["--json", "/nowhere/at/all.json"], "/nowhere/at is no directory"),
        (["--rows", "5"], "--rows"),
        (["--keep", "--json", "/dev/null"], "--keep: /dev/null is no result of make reliability"),
    ],
)
def test_bad_options_are_one_line_and_status_2(arguments: list[str], said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.reliability", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("body", "rows"),
    [
        ("def test(reliability):\n    reliability.found('17', 'x')\n    reliability.found('3', 'x')\n", {"17", "3"}),
        ("ROW: str = '22'\nasync def test(reliability):\n    reliability.found(ROW, 'x')\n", {"22"}),
        ("def test(reliability):\n    for n in '12':\n        reliability.found(n, 'x')\n", None),
        ("def test(reliability):\n    told('x', reliability)\n", {"2"}),
        ("def helped(reliability):\n    told(reliability)\ndef test(reliability):\n    helped(reliability)\n", {"2"}),
        ("def test(reliability):\n    other.found('17', 'x')\n", set()),
        ("def test(reliability):\n    reliability.amount(4, part=1)\n", set()),
        ("def test():\n    told('x', 1)\n", set()),
    ],
    ids=["literals", "a constant", "computed", "by another", "by another's other", "another's", "an amount", "without"],
)
def test_a_test_says_which_rows_it_finds(body: str, rows: Rows) -> None:
    told = "def told(name, reliability):\n    reliability.found('2', name)\n"
    read = finders({"tests/runs.py": told, "tests/unit/test_a.py": body})
    assert read == ({"tests/unit/test_a.py::test": rows} if rows != set() else {})


def test_each_row_by_tests_has_tests_and_no_other_test_is_run_for_it() -> None:
    """Of this repository: a row alone is some tests of some files, or its program."""
    for promise in PROMISES:
        alone = steps([promise], ROOT)
        assert alone
        assert {name for step in alone for name in step.rows} == {promise.row}
    assert [len(steps(choose(only), ROOT)) for only in ("12", "9,12,17", "2", "4,5")] == [1, 1, 5, 2]


def test_a_step_has_those_of_its_rows_that_are_wanted() -> None:
    assert rows_of({"a": {"9", "12"}, "b": {"17"}}, choose("12,17,20")) == {"12", "17"}
    assert rows_of({"a": None}, choose("12,17")) == {"12", "17"}


# --- an earlier result


def found_before(*rows: Row) -> Found:
    return Found(complete=False, rows=list(rows), environment=MACHINE)


def test_what_holds_already_is_kept_and_the_rest_is_tried() -> None:
    """A row of several figures is kept where all of them hold."""
    former = found_before(row("1"), row("9"), row("9", holds=False, test="a storm"), row("12", holds=False))
    wanted = to_try(PROMISES, former, chosen=False)
    assert {promise.row for promise in PROMISES} - {promise.row for promise in wanted} == {"1"}
    assert kept(former, wanted) == [row("1")]


def test_what_was_tried_in_part_is_tried_again() -> None:
    """It is not all that was promised, whatever it found."""
    in_part = msgspec.structs.replace(row("4"), fraction=0.99)
    assert [reached(each) for each in (row("1"), in_part, row("1", holds=False))] == [True, False, False]
    assert "4" in {promise.row for promise in to_try(PROMISES, found_before(row("1"), in_part), chosen=False)}


def test_a_chosen_row_is_tried_again_and_all_others_are_kept_as_they_are() -> None:
    former = found_before(row("12", holds=False), row("1"), row("99"))
    wanted = to_try(choose("1"), former, chosen=True)
    assert [promise.row for promise in wanted] == ["1"]
    assert in_order([row("1"), *kept(former, wanted)]) == [row("1"), row("12", holds=False)]


def test_rows_of_another_machine_are_not_kept() -> None:
    check_same_machine(MACHINE, msgspec.structs.replace(MACHINE, date="today", load_1min=3.0))
    with pytest.raises(SettingsError, match="--keep: what is there was found with cores 2, and here it is 96"):
        check_same_machine(MACHINE, msgspec.structs.replace(MACHINE, cores=96))


def test_an_interrupt_leaves_what_was_found_and_says_so(tmp_path: Path) -> None:
    """Here nothing: the program that was begun is ended, and its row is not run."""
    result = tmp_path / "reliability.json"
    command = [sys.executable, "-m", "tests.reliability", "--only", "5", "--json", str(result)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "-m ops.cli chaos network" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        said = process.stderr.read()
    assert (process.returncode, said.splitlines()[-1]) == (130, "interrupted")
    read = msgspec.json.decode(result.read_bytes(), type=Found)
    assert not read.complete
    assert [(one.row, one.figure, one.holds) for one in read.rows] == [("5", "not run", False)]
