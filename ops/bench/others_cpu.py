"""Whether a machine was quiet while something was measured: from /proc, so Linux only."""

import time

from ops.bench.usage import busy_s, cores, cpu_s


class OthersCpu:
    """The share of all cores that goes, from now on, to processes other than this one and `pid`."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._start = self._read()

    def share(self) -> float:
        (time_s, busy), (start_s, start_busy) = self._read(), self._start
        return max(0.0, (busy - start_busy) / (time_s - start_s) / len(cores()))

    def _read(self) -> tuple[float, float]:
        return time.monotonic(), busy_s(cores()) - cpu_s(self._pid) - time.process_time()
