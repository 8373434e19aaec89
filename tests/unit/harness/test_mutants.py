"""A change that no test notices is named, unless it is argued away; and nothing is argued away that a test notices."""

import pytest

from tests.mutants import ARGUED, Change, Tried, argued, change_of, verdict

DIFF = """--- workers/schedule/slots.py
+++ workers/schedule/slots.py
@@ -1,3 +1,3 @@
 def free(self) -> int:
-    return self._free - 1
+    return self._free + 1
"""
FILE = "workers/schedule/slots.py"
CHANGE = Change(FILE, "return self._free - 1", "return self._free + 1")
ENTRY = f"""
[[mutant]]
file = "{FILE}"
old = "return self._free - 1"
new = "return self._free + 1"
why = "it is the same"
"""


def test_a_change_is_known_by_its_lines_wherever_they_stand() -> None:
    assert change_of(FILE, DIFF) == CHANGE
    assert str(CHANGE) == f"{FILE}\n- return self._free - 1\n+ return self._free + 1"


def test_what_survives_is_unnoticed_unless_it_is_argued_away() -> None:
    tried = Tried(1, {FILE}, {CHANGE})
    assert verdict(tried, ()) == ([CHANGE], [])
    assert verdict(tried, argued(ENTRY)) == ([], [])


def test_what_is_argued_away_and_noticed_is_named_if_its_file_was_tried_whole() -> None:
    assert verdict(Tried(1, {FILE}, set()), argued(ENTRY)) == ([], [CHANGE])
    assert verdict(Tried(1, set(), set()), argued(ENTRY)) == ([], [])


@pytest.mark.parametrize("table", [ENTRY.replace("it is the same", " "), 2 * ENTRY])
def test_each_stands_once_and_with_a_reason(table: str) -> None:
    with pytest.raises(ValueError, match="no reason, or twice"):
        argued(table)


def test_the_table_can_be_read() -> None:
    assert argued(ARGUED.read_text())
