"""Bugs by which a fault in one item harms others, or ends without a word."""

from typing import Final

from ops.planted_bugs.bug import Bug

FAULT_BUGS: Final = (
    Bug(
        "one faulty answer at its deadline takes the others of the batch",
        "gateway/gateway.py",
        "                if ending.error is not None:\n",
        "                if ending.error is not None:\n                    raise ending.error\n",
        ("tests/unit/test_gateway_faults.py",),
    ),
    Bug(
        "a fault in what is done beside leaves an answer without its end",
        "gateway/endings.py",
        "        if working.error is not None:\n            self.fail(entry)\n",
        "",
        ("tests/unit/test_gateway_faults.py",),
    ),
)
