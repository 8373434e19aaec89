"""An unnoticed mutant is named unless the table argues why; an argued mutant that a test notices is named too."""

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


def test_unargued_survivors_and_argued_but_noticed_mutants_are_named() -> None:
    assert argued(ARGUED.read_text())
    assert verdict(Tried(1, {FILE}, {CHANGE}), ()) == ([CHANGE], [])
    assert verdict(Tried(1, {FILE}, {CHANGE}), argued(ENTRY)) == ([], [])
    assert verdict(Tried(1, {FILE}, set()), argued(ENTRY)) == ([], [CHANGE])
    with pytest.raises(ValueError, match="no reason, or twice"):
        argued(2 * ENTRY)
