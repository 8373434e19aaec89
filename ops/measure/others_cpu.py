"""Whether a machine was quiet while something was measured: from /proc, so Linux only."""

import time

from ops.measure.usage import busy_s, cores, cpu_s


class OthersCpu:
    """The share of all cores that goes, from now on, to processes that are no part of what is measured."""

    def __init__(self) -> None:
        self._start = self._read()

    def share(self, pid: int | None = None) -> float:
        """0 to 1. This process is a part of it, and `pid`, which was started after this object was made."""
        (now_s, busy), (start_s, start_busy) = self._read(), self._start
        ours = 0.0 if pid is None else cpu_s(pid)
        return max(0.0, (busy - start_busy - ours) / (now_s - start_s) / len(cores()))

    def _read(self) -> tuple[float, float]:
        return time.monotonic(), busy_s(cores()) - time.process_time()
