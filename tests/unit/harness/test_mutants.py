"""A change that no test notices is named, unless it is argued away; and nothing is argued away that a test notices."""

import pytest

from tests.planted.mutants import ARGUED, Change, Tried, argued, verdict

FILE = "workers/schedule/slots.py"
CHANGE = Change(FILE, "return self._free - 1", "return self._free + 1")
ENTRY = f"""
[[mutant]]
file = "{FILE}"
old = "return self._free - 1"
new = "return self._free + 1"
why = "it is the same"
"""


def test_a_survivor_is_named_unless_argued_away_and_what_is_argued_away_and_noticed_too() -> None:
    assert argued(ARGUED.read_text())
    assert verdict(Tried(1, {FILE}, {CHANGE}), ()) == ([CHANGE], [])
    assert verdict(Tried(1, {FILE}, {CHANGE}), argued(ENTRY)) == ([], [])
    assert verdict(Tried(1, {FILE}, set()), argued(ENTRY)) == ([], [CHANGE])
    with pytest.raises(ValueError, match="no reason, or twice"):
        argued(2 * ENTRY)
