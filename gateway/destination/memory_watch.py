"""Watch this process's memory against its budget.

The marks are those that Envoy's documentation gives for its overload manager and the heap
(https://www.envoyproxy.io/docs/envoy/latest/configuration/operations/overload_manager/overload_manager).
"""

import asyncio
import ctypes
import os
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final

from shared.telemetry import metrics
from shared.telemetry.logs import get_logger

log = get_logger()

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


_WATCH_S: Final = 0.25
_STATM: Final = Path("/proc/self/statm")
_STATM_BYTES: Final = 256  # seven numbers
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
MIB: Final = 1_048_576
# What was freed stays the process's own until the allocator hands it back; glibc's does when it is asked to.
_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)


@dataclass(slots=True)
class MemoryWatch:
    """`budget_bytes` 0: no budget, the level is always normal."""

    budget_bytes: int = 0
    level: MemoryLevel = MemoryLevel.NORMAL
    _resident_bytes: int = 0

    @property
    def sheds(self) -> bool:
        return self.level >= MemoryLevel.SHEDDING

    @property
    def refuses(self) -> bool:
        return self.level >= MemoryLevel.REFUSING

    def missing(self) -> str | None:
        """Return the memory's line for `/ready`; None while there is enough."""
        if not self.refuses:
            return None
        used, budget = self._resident_bytes / MIB, self.budget_bytes / MIB
        return f"{used:.0f} of {budget:.0f} MiB are in use: nobody new is let in"

    def update(self, resident_bytes: int) -> None:
        """Note how much of the process is in memory now."""
        self._resident_bytes = resident_bytes
        level = memory_level(resident_bytes, self.budget_bytes, self.level)
        if level is not self.level:
            log.warning("memory", now=level.name.lower(), mib=resident_bytes // MIB, budget_mib=self._budget_mib)
            self.level = level
            metrics.guards.labels("memory").set(level)

    async def watch(self) -> None:
        """Watch until cancelled; return without a budget, and with a warning if memory cannot be read."""
        if not self.budget_bytes:
            return
        try:
            statm = os.open(_STATM, os.O_RDONLY)  # once: a process in need may have no descriptor left
        except OSError as error:
            log.warning("memory_budget_unwatched", budget_mib=self._budget_mib, cause=f"{_STATM}: {error.strerror}")
            return
        try:
            while True:
                self.update(_resident_bytes(statm))
                if self.sheds and _trim is not None:
                    _trim(0)
                await asyncio.sleep(_WATCH_S)
        finally:
            os.close(statm)

    @property
    def _budget_mib(self) -> int:
        return self.budget_bytes // MIB


def _resident_bytes(statm: int) -> int:
    """Return the process's resident memory by the open `/proc/self/statm`."""
    return int(os.pread(statm, _STATM_BYTES, 0).split()[1]) * _PAGE_BYTES
