"""The fewest decisions that still fail: delta debugging over a plan's rows (Zeller, ddmin)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tests.world.plan import Plan

_PARTS: Final = ("faults", "acts", "records", "asks")


def shrink(plan: Plan, fails: Callable[[Plan], bool], most_runs: int) -> Plan:
    """Return a plan that still fails, of which no tried part can be left out; `plan` fails."""
    left = most_runs
    for part in _PARTS:
        rows = getattr(plan, part)
        size = max(1, len(rows) // 2)
        while rows and size:
            at = 0
            while at < len(rows) and left:
                fewer = rows[:at] + rows[at + size :]
                tried = replace(plan, **{part: fewer})
                left -= 1
                if fails(tried):
                    rows, plan = fewer, tried
                else:
                    at += size
            size //= 2
    return plan
