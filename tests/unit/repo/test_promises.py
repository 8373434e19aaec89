"""Each row of docs/reliability.md is proved by marked tests, and a whole run reports the result of each."""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
ROWS = re.findall(r"^\| (\d+) \|(.*)$", (ROOT / "docs" / "reliability.md").read_text(), re.MULTILINE)
MARK = re.compile(r"^(?:pytestmark = |@)pytest\.mark\.promise\((\d+)\)", re.MULTILINE)
MARKED = {
    str(path.relative_to(ROOT)): set(MARK.findall(text))
    for path in (ROOT / "tests").rglob("test_*.py")
    if path != Path(__file__) and "mark.promise" in (text := path.read_text())
}
SOME = """
import pytest

@pytest.mark.promise(2)
@pytest.mark.promise(1)
def test_a(reliability):
    reliability.found(figure=f"{reliability.amount(10, part=1)} of 10", target="10", holds=True)

@pytest.mark.promise(2)
@pytest.mark.parametrize("holds", [True, False])
def test_b(holds, reliability):
    reliability.found(figure="3", target="4", holds=holds)

def test_c():
    assert 0
"""


def test_each_row_names_the_files_whose_tests_prove_it_and_each_marker_has_a_row() -> None:
    named = {row: set(re.findall(r"`(tests/[\w/]+\.py)`", text)) for row, text in ROWS}
    assert all(named.values())
    assert named == {
        row: {path for path, rows in MARKED.items() if row in rows}
        for row in {row for rows in MARKED.values() for row in rows}
    }


def test_a_whole_run_writes_and_prints_each_promise_its_tests_and_what_they_found(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(SOME)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = promise\n")
    result = tmp_path / "reliability.json"
    options = ("-p", "tests.support.reliability", "-p", "no:cacheprovider", "-m", "promise", "--reliability", result)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, tmp_path], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    rows = [" ".join(map(str, row.values())) for row in json.loads(result.read_bytes())["rows"]]
    assert [row.replace("test_some.py::", "") for row in rows] == [
        "1 test_a passed 10 of 10 10",
        "2 test_a passed 10 of 10 10",
        "2 test_b[False] failed 3 4",
        "2 test_b[True] passed 3 4",
    ]
    assert "  1 holds" in done.stdout
    assert "  2 DOES NOT HOLD" in done.stdout
