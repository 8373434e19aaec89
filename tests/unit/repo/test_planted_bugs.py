"""The table of planted bugs fits the code as it is, and only a failing test counts as catching one."""

from pathlib import Path

import pytest

from tests.planted.bugs import ROOT, TABLE, Bug, Found, failing_anyway, judge, main, misplaced, named, read_bugs

BUGS = read_bugs(TABLE.read_bytes())


def test_forty_bugs_of_different_names_have_their_place_in_the_code_once_and_their_tests_are_there() -> None:
    """With each the code still begins: one that does not compile would be caught by anything."""
    assert misplaced(BUGS, ROOT) == []
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 40
    for bug in BUGS:
        text = (ROOT / bug.file).read_text()
        planted = bug.planted_in(text)
        assert planted != text
        compile(planted, bug.file, "exec")


@pytest.mark.parametrize(("text", "count"), [("", 0), ("a a", 2)])
def test_a_bug_that_does_not_fit_is_one_line(text: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(text)
    bug = Bug("a bug", "x.py", "a", "b", ("test_x.py",))
    assert misplaced([bug], tmp_path) == [
        f"a bug: 'a' stands {count} times in x.py; correct bugs.toml",
        "a bug: test_x.py is missing",
    ]


@pytest.mark.parametrize(
    ("status", "output", "verdict", "said"),
    [
        (1, "F\nFAILED tests/unit/test_a.py::test_b[x y] - assert 1 - 2\n1 failed\n", "caught", "test_b[x y]"),
        (1, "FAILED tests/unit/test_a.py::test_b\n", "caught", "test_b"),
        (0, "3 passed\n", "missed", "every test passes"),
        (2, "ERROR tests/unit/test_a.py\n1 error\n", "broken", "1 error"),
        (1, "ERROR tests/unit/test_a.py::test_b - fixture\n1 error\n", "broken", "1 error"),
        (-9, "", "broken", "no output"),
    ],
)
def test_a_planted_bug_is_caught_only_by_a_failing_test(status: int, output: str, verdict: str, said: str) -> None:
    assert judge(status, output) == (verdict, said)


@pytest.mark.parametrize(
    ("verdicts", "failing", "unsteady"),
    [(["missed"], [], []), (["caught", "missed"], [], ["1"]), (["caught", "caught"], ["2"], [])],
)
def test_what_fails_without_a_bug_is_tried_once_more(
    verdicts: list[str], failing: list[str], unsteady: list[str]
) -> None:
    left = [Found(verdict, str(number)) for number, verdict in enumerate(verdicts, 1)]  # type: ignore[arg-type]
    found = failing_anyway([lambda _: left.pop(0)], lambda trials: [trial(ROOT) for trial in trials])
    assert found == (failing, unsteady)
    assert not left


def test_a_part_of_a_name_is_enough_where_one_bug_has_it() -> None:
    whole, longer = (Bug(name, "x.py", "a", "b", ()) for name in ("a slot", "a slot more"))
    assert named("more", [whole, longer]) is longer
    assert named("a slot", [whole, longer]) is whole
    for part, said in (("slo", "2 bugs"), ("none", "0 bugs")):
        with pytest.raises(ValueError, match=said):
            named(part, [whole, longer])


def test_a_word_that_no_name_holds_is_said_with_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["nonsuch"])
    said = capsys.readouterr().err
    assert said.startswith("usage: python -m tests.planted.bugs [-h] [WORD ...]")
    assert "no bug's name holds nonsuch" in said
