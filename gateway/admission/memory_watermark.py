"""Judge how near a process is to its memory budget, and what that calls for: pure.

The marks are those that Envoy's documentation gives for its overload manager and the heap
(https://www.envoyproxy.io/docs/envoy/latest/configuration/operations/overload_manager/overload_manager).
"""

from enum import IntEnum
from typing import Final

SHED_AT: Final = 0.92
REFUSE_AT: Final = 0.95
# Of the budget: memory that is freed and taken again does not change the level to and fro.
_HYSTERESIS: Final = 0.02


class MemoryLevel(IntEnum):
    """The memory's level against its budget. `SHEDDING`: requests are answered at little cost. `REFUSING`: no new
    connection or request is accepted."""

    NORMAL = 0
    SHEDDING = 1
    REFUSING = 2


_MARKS: Final = ((MemoryLevel.REFUSING, REFUSE_AT), (MemoryLevel.SHEDDING, SHED_AT))


def memory_level(resident_bytes: int, budget_bytes: int, was: MemoryLevel) -> MemoryLevel:
    """Return the level, which begins at its mark and ends a little below it."""
    for level, mark in _MARKS:
        if resident_bytes >= budget_bytes * (mark if was < level else mark - _HYSTERESIS):
            return level
    return MemoryLevel.NORMAL
