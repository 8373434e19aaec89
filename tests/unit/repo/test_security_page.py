"""Each promise of docs/security.md names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "security.md").read_text()
PROMISES = re.findall(r"\| promise \| test \|\n\|---\|---\|\n((?:\|.*\n)+)", PAGE)
ROWS = [row.rstrip(" |").rpartition(" | ") for table in PROMISES for row in table.splitlines()]
NAMED = re.compile(r"`(?:tests/)?((?:unit|integration|conformance|browser)/[\w/]+\.py)`")


def test_each_promise_names_a_test() -> None:
    assert len(PROMISES) == PAGE.count("| promise | test |") > 0
    assert [promise for promise, _, tests in ROWS if not NAMED.search(tests)] == []


def test_each_named_test_exists() -> None:
    assert [path for path in NAMED.findall(PAGE) if not (ROOT / "tests" / path).is_file()] == []


def test_the_number_of_tested_behaviours_is_that_of_the_tests() -> None:
    source = (ROOT / "tests" / "integration" / "doors" / "test_worst_address.py").read_text()
    tables = re.findall(r"^(?:WORST|FRAMES|PROBES)\b[^\n]*\{\n(.*?)^\}", source, re.DOTALL | re.MULTILINE)
    behaviours = sum(len(re.findall(r'^    "', table, re.MULTILINE)) for table in tables)
    assert (len(tables), f"({behaviours} behaviours tested)" in PAGE) == (3, True)
