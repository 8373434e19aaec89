"""Find the smallest plan that still fails: remove rows by delta debugging (Zeller, ddmin), then simplify the others."""

from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, replace
from typing import Any, Final

from tests.world.plan import Plan

_PARTS: Final = ("asks", "records", "acts", "faults")
Still = Callable[[Plan], bool]


def shrink(plan: Plan, fails: Still, most_runs: int) -> Plan:
    """Return the smallest failing plan found within `most_runs` runs; `plan` itself must fail."""
    left = most_runs

    def still(tried: Plan) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and fails(tried)

    while True:
        smaller = plan
        for part in _PARTS:
            smaller = _fewer(smaller, part, still)
        for part in _PARTS:
            smaller = _plainer(smaller, part, still)
        if smaller == plan or left <= 0:
            return smaller
        plan = smaller


def _fewer(plan: Plan, part: str, still: Still) -> Plan:
    """Remove the rows that the failure does not need: all, half, and so on down to one."""
    size = len(getattr(plan, part))
    while size:
        at = 0
        while at < len(rows := getattr(plan, part)):
            tried = replace(plan, **{part: rows[:at] + rows[at + size :]})
            if still(tried):
                plan = tried
            else:
                at += size
        size //= 2
    return plan


def _plainer(plan: Plan, part: str, still: Still) -> Plan:
    """Simplify each row as far as possible."""
    for at in range(len(getattr(plan, part))):
        for change in _changes(getattr(plan, part)[at]):
            rows = getattr(plan, part)
            row = replace(rows[at], **change)
            changed: Any = {part: (*rows[:at], row, *rows[at + 1 :])}
            tried = replace(plan, **changed)
            if row != rows[at] and still(tried):
                plan = tried
    return plan


def _changes(row: Any) -> Iterator[dict[str, Any]]:
    """Yield the changes that simplify a row: all together, then each alone."""
    plain = {field.name: field.default for field in fields(row) if field.default is not MISSING}
    plain |= {"at_s": round(row.at_s, 1)} | ({"session": 0} if hasattr(row, "session") else {})
    yield plain
    for name, value in plain.items():
        yield {name: value}
