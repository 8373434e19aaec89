"""Read the resource usage of another process, and raise the limit of open files. Linux only, because it uses /proc."""

import os
import resource
from pathlib import Path
from typing import Final

from shared.errors import SettingsError

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def rss_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES


def peak_rss_bytes(pid: int) -> int:
    """Return the peak resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    peak = next(line for line in lines if line.startswith("VmHWM:"))
    return int(peak.split()[1]) * 1_024


def raise_file_limit(wanted: int) -> None:
    """Allow `wanted` open files for this process and its children. Raises `SettingsError` with the remedy."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise SettingsError(f"{wanted} open files are needed and {hard} are allowed; raise it: ulimit -Hn {wanted}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
