"""Wrong clocks: `python -m tests.chaos.faults.clocks FILE MODULE …` runs a module whose wall clock has the error in
FILE, in seconds, which can change at any moment.

`time.time` and `time.time_ns` are changed, for the module and for the libraries that it uses (aiokafka's record times,
redis, OpenTelemetry). Monotonic clocks and `datetime.now` are not: only the log's timestamps use it.
"""

import runpy
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

READ_EVERY_S: Final = 0.1
_NS: Final = 1_000_000_000


@dataclass(slots=True)
class Clock:
    """A clock that reads its file at most ten times a second, measured by `monotonic`. Without a file it is right."""

    file: Path
    wall_ns: Callable[[], int]
    monotonic: Callable[[], float]
    _offset_ns: int = 0
    _read_s: float = float("-inf")

    def time_ns(self) -> int:
        now_s = self.monotonic()
        if now_s - self._read_s >= READ_EVERY_S:
            self._read_s = now_s
            self._offset_ns = round(read_offset_s(self.file) * _NS)
        return self.wall_ns() + self._offset_ns

    def time(self) -> float:
        return self.time_ns() / _NS


def read_offset_s(file: Path) -> float:
    try:
        return float(file.read_text())
    except FileNotFoundError:
        return 0.0


def turn(file: Path, offset_s: float) -> None:
    """From the next tenth of a second on that clock is so far ahead of the machine's; behind is negative."""
    new = file.with_suffix(".new")
    new.write_text(f"{offset_s}")
    new.rename(file)  # complete at any time of reading


def main() -> None:
    file, module = sys.argv[1:3]
    clock = Clock(Path(file), time.time_ns, time.monotonic)
    time.time, time.time_ns = clock.time, clock.time_ns
    sys.argv = sys.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
