"""What another process uses, and where it runs: from /proc, so Linux only."""

import os
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from shared.errors import SettingsError

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
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


def rss_bytes(pid: int) -> int:
    """Resident memory now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES


def peak_rss_bytes(pid: int) -> int:
    """The most that was ever resident."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    peak = next(line for line in lines if line.startswith("VmHWM:"))
    return int(peak.split()[1]) * 1_024


def cores() -> list[int]:
    """Those this process may run on."""
    return sorted(os.sched_getaffinity(0))


def two_sides() -> tuple[list[int], list[int]]:
    """One core for what is measured, the others for what loads it. Raises `SettingsError` on a single core."""
    available = cores()
    if len(available) < 2:  # noqa: PLR2004 - it is the number's name
        raise SettingsError("this bench pins the gateway to a core of its own: run it where there are two or more")
    return available[-1:], available[:-1]


@contextmanager
def running_on(some: Sequence[int] | None) -> Iterator[None]:
    """What is started inside runs on these cores from its first thread on; this process does so meanwhile."""
    before = os.sched_getaffinity(0)
    if some is not None:
        os.sched_setaffinity(0, some)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def raise_file_limit(wanted: int) -> None:
    """As many open files as asked for, for this process and its children. Raises `SettingsError` with the remedy."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise SettingsError(f"{wanted} open files are needed and {hard} are allowed; raise it: ulimit -Hn {wanted}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
