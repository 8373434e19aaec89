"""Whether a process computed, or waited for a core, when it should have answered: for the stories.

Linux counts both of each thread (`/proc/PID/schedstat`: Documentation/scheduler/sched-stats.rst). Here it is the main
thread, in which an event loop runs. A loop that stands still while its thread computes is the product's fault; one
whose thread is ready to run, and has no core, is the machine's.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from tests.chaos.ledger.requests import Line

_EVERY_S: Final = 0.25
_NS: Final = 1e9
NOTABLE: Final = 0.8
"""Of the time between two looks."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds since the process began: on a core, and ready to run without one."""

    computing_s: float
    waiting_s: float


def read_spent(pid: int) -> Spent | None:
    """None where the process has gone, or the system does not count it."""
    try:
        computing_ns, waiting_ns, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    except (OSError, ValueError):
        return None
    return Spent(int(computing_ns) / _NS, int(waiting_ns) / _NS)


def notable(name: str, before: Spent, now: Spent, passed_s: float) -> str | None:
    """What is worth telling of that time; None: most of it the process had nothing to do."""
    computing_s, waiting_s = now.computing_s - before.computing_s, now.waiting_s - before.waiting_s
    if computing_s + waiting_s < NOTABLE * passed_s:
        return None
    return f"{name}: of {passed_s:.2f} s it computed {computing_s:.2f} and had no core for {waiting_s:.2f}"


@dataclass(slots=True)
class CoreWatch:
    """Use as a context manager: looks four times a second, in a thread of its own. `pids` by name, as they are then."""

    pids: Callable[[], Mapping[str, int]]
    lines: list[Line] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def _run(self) -> None:
        before: dict[int, Spent] = {}
        before_s = time.monotonic()
        while not self._over.wait(_EVERY_S):
            found = {(name, pid): read_spent(pid) for name, pid in self.pids().items()}
            now_s = time.monotonic()
            for (name, pid), spent in found.items():
                if spent is not None and pid in before:
                    told = notable(name, before[pid], spent, now_s - before_s)
                    self.lines += [Line(now_s, told)] if told is not None else []
            before = {pid: spent for (_, pid), spent in found.items() if spent is not None}
            before_s = now_s

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="cores", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._thread is not None, "inside the context"
        self._over.set()
        self._thread.join()
