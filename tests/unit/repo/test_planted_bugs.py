"""The table of planted bugs fits the code as it is, and only a failing test counts as catching one."""

from pathlib import Path

import pytest

from tests.planted_bugs.__main__ import Verdict, judge
from tests.planted_bugs.bug import Bug
from tests.planted_bugs.bugs import BUGS, find_misplaced

ROOT = Path(__file__).parents[3]


def test_each_bug_has_its_place_in_the_code_once_and_its_tests_are_there() -> None:
    assert find_misplaced(ROOT) == []


def test_there_are_enough_of_them_under_names_of_their_own() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 12


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_with_a_bug_the_code_still_begins(bug: Bug) -> None:
    """One that does not compile would be caught by anything."""
    text = (ROOT / bug.file).read_text()
    planted = bug.planted_in(text)
    assert planted != text
    compile(planted, bug.file, "exec")


@pytest.mark.parametrize("text", ["", "a a"])
def test_a_bug_without_a_place_of_its_own_says_so(text: str) -> None:
    bug = Bug("a bug", "x.py", "a", "b", ())
    with pytest.raises(ValueError, match=r"a bug: 'a' stands [02] times in x.py; correct the table"):
        bug.planted_in(text)


@pytest.mark.parametrize(
    ("status", "output", "verdict", "by"),
    [
        (1, "F\nFAILED tests/unit/test_a.py::test_b[x y] - assert 1 - 2\n1 failed\n", Verdict.CAUGHT, "test_b[x y]"),
        (1, "FAILED tests/unit/test_a.py::test_b\n", Verdict.CAUGHT, "test_b"),
        (0, "3 passed\n", Verdict.MISSED, ""),
        (2, "ERROR tests/unit/test_a.py\n1 error\n", Verdict.BROKEN, "1 error"),
        (
            4,
            "ERROR: file or directory not found: tests/x.py\n\n",
            Verdict.BROKEN,
            "ERROR: file or directory not found: tests/x.py",
        ),
        (1, "ERROR tests/unit/test_a.py::test_b - fixture\n1 error\n", Verdict.BROKEN, "1 error"),
        (-9, "", Verdict.BROKEN, "no output"),
    ],
)
def test_only_a_test_that_fails_catches(status: int, output: str, verdict: Verdict, by: str) -> None:
    outcome = judge(status, output, 1.5)
    assert (outcome.verdict, outcome.by, outcome.seconds) == (verdict, by, 1.5)
