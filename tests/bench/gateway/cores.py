"""The cores of the gateway's bench, and the time that they work: from /proc, so Linux only."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from shared.errors import SettingsError

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_UTIME, _STIME = 11, 12  # of /proc/<pid>/stat, counted after the name


def cpu_s(pid: int) -> float:
    """CPU seconds of all the process's threads so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS_PER_S


def busy_s(some: Sequence[int]) -> float:
    """Seconds that these cores have worked so far, for whomever."""
    names = {f"cpu{core}" for core in some}
    total = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *ticks = line.split()
        if name in names:
            user, nice, system, _idle, _iowait, *rest = map(int, ticks[:8])
            total += user + nice + system + sum(rest)
    return total / _TICKS_PER_S


def two_sides() -> tuple[list[int], list[int]]:
    """One core for what is measured, the others for what loads it. Raises `SettingsError` on a single core."""
    available = sorted(os.sched_getaffinity(0))
    if len(available) < 2:
        raise SettingsError("this bench pins the gateway to a core of its own: run it where there are two or more")
    return available[-1:], available[:-1]
