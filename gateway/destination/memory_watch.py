"""Watch this process's memory against its budget.

The thresholds are those in Envoy's documentation of its overload manager for the heap
(https://www.envoyproxy.io/docs/envoy/latest/configuration/operations/overload_manager/overload_manager).
"""

import asyncio
import ctypes
import os
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Final

from shared.telemetry import metrics
from shared.telemetry.logs import get_logger

log = get_logger()

SHED_AT: Final = 0.92
REFUSE_AT: Final = 0.95
# A share of the budget. It keeps the level from alternating when memory is freed and allocated again.
_HYSTERESIS: Final = 0.02


class MemoryLevel(IntEnum):
    """How full the memory budget is. `SHEDDING`: the fallback answers requests. `REFUSING`: no new connection or
    request is accepted."""

    NORMAL = 0
    SHEDDING = 1
    REFUSING = 2


_MARKS: Final = ((MemoryLevel.REFUSING, REFUSE_AT), (MemoryLevel.SHEDDING, SHED_AT))


def memory_level(resident_bytes: int, budget_bytes: int, was: MemoryLevel) -> MemoryLevel:
    """Return the level. It begins at its threshold and ends `_HYSTERESIS` below it."""
    for level, mark in _MARKS:
        if resident_bytes >= budget_bytes * (mark if was < level else mark - _HYSTERESIS):
            return level
    return MemoryLevel.NORMAL


_WATCH_S: Final = 0.25
_STATM: Final = Path("/proc/self/statm")
_STATM_BYTES: Final = 256  # seven numbers
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
MIB: Final = 1_048_576
# The allocator keeps freed memory until it is asked to return it to the system; glibc has a call for that.
_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)


@dataclass(slots=True)
class MemoryWatch:
    """Measures resident memory. With `budget_bytes` 0 there is no budget, and the level is always normal. The level
    `sheds` or `refuses`: plain values, because every question reads them."""

    budget_bytes: int = 0
    level: MemoryLevel = field(default=MemoryLevel.NORMAL, init=False)
    sheds: bool = field(default=False, init=False)
    refuses: bool = field(default=False, init=False)
    _resident_bytes: int = field(default=0, init=False)

    def missing(self) -> str | None:
        """Return the reason for `/ready` why the gateway is not ready; None while there is enough memory."""
        if not self.refuses:
            return None
        used, budget = self._resident_bytes / MIB, self.budget_bytes / MIB
        return f"{used:.0f} of {budget:.0f} MiB are in use: new connections are refused"

    def update(self, resident_bytes: int) -> None:
        """Set the process's current resident memory."""
        self._resident_bytes = resident_bytes
        level = memory_level(resident_bytes, self.budget_bytes, self.level)
        if level is not self.level:
            log.warning("memory", now=level.name.lower(), mib=resident_bytes // MIB, budget_mib=self._budget_mib)
            self.level = level
            self.sheds, self.refuses = level >= MemoryLevel.SHEDDING, level >= MemoryLevel.REFUSING
            metrics.guards.labels("memory").set(level)

    async def watch(self) -> None:
        """Measure memory until cancelled. Return immediately without a budget, and with a warning if memory cannot be
        read."""
        if not self.budget_bytes:
            return
        try:
            statm = os.open(_STATM, os.O_RDONLY)  # opened once: a process short of descriptors could not open it again
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
    """Return the process's resident memory from the open `/proc/self/statm`."""
    return int(os.pread(statm, _STATM_BYTES, 0).split()[1]) * _PAGE_BYTES
