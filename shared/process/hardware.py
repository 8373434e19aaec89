"""Figures of the machine's processors and memory, from /proc (see `proc(5)`)."""

import math
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_STAT: Final = Path("/proc/stat")
_MEMINFO: Final = Path("/proc/meminfo")
_CPUINFO: Final = Path("/proc/cpuinfo")
_CGROUP: Final = Path("/sys/fs/cgroup")
# Columns of /proc/stat's first line in `proc(5)`. Guest time is already included in `user`.
_MODES: Final = {
    "user": "busy",
    "nice": "busy",
    "system": "busy",
    "idle": "idle",
    "iowait": "iowait",
    "irq": "busy",
    "softirq": "busy",
    "steal": "steal",
}
_KIB: Final = 1_024


@dataclass(frozen=True, slots=True)
class MachineUsage:
    """The machine's figures.

    Attributes:
        cpu_s: seconds since boot over all cores, by `busy`, `iowait`, `steal` and `idle`.
        memory_total_bytes: all memory.
        memory_available_bytes: memory that is available without swapping.
    """

    cpu_s: dict[str, float]
    memory_total_bytes: int
    memory_available_bytes: int


def parse_machine(stat: str, meminfo: str, *, ticks_per_s: int) -> MachineUsage:
    """Parse the text of /proc/stat and /proc/meminfo.

    Raises:
        ValueError: the text has another format.
    """
    label, *ticks = stat.partition("\n")[0].split() or [""]
    if label != "cpu" or len(ticks) < len(_MODES):
        raise ValueError(f"/proc/stat begins with {label!r} and {len(ticks)} numbers")
    counts = dict.fromkeys(_MODES.values(), 0)
    for mode, count in zip(_MODES.values(), ticks, strict=False):
        counts[mode] += int(count)
    sizes = dict(line.split(":", 1) for line in meminfo.splitlines() if ":" in line)
    missing = {"MemTotal", "MemAvailable"} - sizes.keys()
    if missing:
        raise ValueError(f"/proc/meminfo has no {', '.join(sorted(missing))}")
    total, available = (int(sizes[name].split()[0]) * _KIB for name in ("MemTotal", "MemAvailable"))
    return MachineUsage({mode: count / ticks_per_s for mode, count in counts.items()}, total, available)


def read_machine() -> MachineUsage | None:
    """Return the machine's figures; None if /proc does not exist or has another format."""
    try:
        return parse_machine(_STAT.read_text(), _MEMINFO.read_text(), ticks_per_s=os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError):
        return None


def cpu_name() -> str:
    """Return the name of the processor's model."""
    try:
        lines = _CPUINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = next((line for line in lines if line.startswith("model name")), "")
    return named.partition(":")[2].strip() or platform.machine()


def usable_cores(cgroup: Path = _CGROUP) -> int:
    """Return the number of cores that this process may use: its CPU affinity, limited by its container, rounded up."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
        return max(1, min(cores, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):  # no control group, or "max" for no limit
        return cores


def available_memory(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int | None:
    """Return the bytes that a new process may use: the machine's, or what its container has left if that is less.

    Returns:
        None if the system does not report it, for example without /proc.
    """
    try:
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    except OSError:
        return None
    available = int(fields["MemAvailable"].split()[0]) * _KIB
    limit, used = (_number(cgroup / name) for name in ("memory.max", "memory.current"))
    return available if limit is None or used is None else min(available, max(limit - used, 0))


def _number(path: Path) -> int | None:
    """Return the number in a file; None if there is no file or no limit in it."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
