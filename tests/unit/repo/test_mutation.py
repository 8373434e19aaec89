"""A change that no test notices is named, unless it is argued away; and nothing is argued away that a test notices."""

import pytest

from tests.mutation.__main__ import ARGUED, ROOT, Change, argued, change_of, verdict
from tests.mutation.lua import SCRIPTS, bugs_of
from tests.mutation.lua import change_of as change_of_script

DIFF = """--- workers/schedule/slots.py
+++ workers/schedule/slots.py
@@ -1,3 +1,3 @@
 def free(self) -> int:
-    return self._free - 1
+    return self._free + 1
"""
CHANGE = Change("workers/schedule/slots.py", "return self._free - 1", "return self._free + 1")
ENTRY = """
[[mutant]]
file = "workers/schedule/slots.py"
old = "return self._free - 1"
new = "return self._free + 1"
why = {why!r}
"""


def test_a_change_is_known_by_its_lines_wherever_they_stand() -> None:
    assert change_of("workers/schedule/slots.py", DIFF) == CHANGE
    assert str(CHANGE) == "workers/schedule/slots.py\n- return self._free - 1\n+ return self._free + 1"


def test_what_survives_is_unnoticed_unless_it_is_argued_away() -> None:
    reasons = argued(ENTRY.format(why="it is the same"))
    assert verdict([CHANGE], {CHANGE.file}, {}) == ([CHANGE], [])
    assert verdict([CHANGE], {CHANGE.file}, reasons) == ([], [])


def test_what_is_argued_away_and_noticed_is_named_where_its_file_was_tried() -> None:
    reasons = argued(ENTRY.format(why="it is the same"))
    assert verdict([], {CHANGE.file}, reasons) == ([], [CHANGE])
    assert verdict([], {"workers/schedule/lengths.py"}, reasons) == ([], [])


@pytest.mark.parametrize(
    ("text", "wrong"), [(ENTRY.format(why=" "), "no reason"), (2 * ENTRY.format(why="x"), "twice")]
)
def test_each_stands_once_and_with_a_reason(text: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        argued(text)


def test_the_table_can_be_read() -> None:
    argued(ARGUED.read_text())


def test_a_script_is_changed_in_one_place_at_a_time_and_comments_are_left_alone() -> None:
    script = "-- 1 and 0\nif a == 0 and b > 1 then return 1 end\nredis.call('DEL', KEYS[1])\n"
    text = f'"""One and the other."""\nA = """\n{script}"""\n'
    bugs = list(bugs_of("x.py", text, ()))
    changed = {change_of_script(bug).new for bug in bugs}
    assert changed == {
        "if a ~= 0 and b > 1 then return 1 end",
        "if a == 1 and b > 1 then return 1 end",
        "if a == 0 or b > 1 then return 1 end",
        "if a == 0 and b >= 1 then return 1 end",
        "if a == 0 and b > 2 then return 1 end",
        "if a == 0 and b > 1 then return 2 end",
        "redis.call('DEL', KEYS[2])",
        "",
    }
    assert all(bug.planted_in(text) != text for bug in bugs)


def test_every_script_that_redis_runs_is_among_them() -> None:
    files = {
        str(path.relative_to(ROOT)) for each in ("gateway", "shared", "workers") for path in (ROOT / each).rglob("*.py")
    }
    assert {file for file in files if "redis.call(" in (ROOT / file).read_text()} == set(SCRIPTS)
