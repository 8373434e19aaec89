"""Decide whether stored blocks are worth loading: the predicted time of a load against the time that it saves. Pure.

A load takes `rtt_ms + bytes / bandwidth`, learned from recent loads. Each computed token attends to all tokens before
it, so it costs no less than the one before. The gain of loading the first n blocks is therefore convex in n, and the
best n is none or all, which is what is decided.

Medians make this robust (Theil–Sen, 1950 and 1968): the time for a byte is the median slope between pairs of loads, the
constant is the median of the rest in the last five loads. One or two stalls in five change nothing, three slow loads
do; as many fast ones change it back, for which a small probe is loaded from time to time.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from statistics import median, median_low
from typing import Final

_REMEMBERED: Final = 15
_RECENT: Final = 5
_DIFFERENT: Final = 0.5  # with loads of similar size, noise is larger than the effect of the bytes
_PROBE_BLOCKS: Final = (1, 2, 4)  # of different sizes, so that probes alone determine both values


@dataclass(frozen=True, slots=True)
class LoadDecision:
    """Load the first `num_blocks`.

    Attributes:
        load_ms: predicted time to load all blocks.
        recompute_ms: predicted time that this would save.
        probe: loading is off, and this load tests whether it is still slow.
    """

    num_blocks: int
    load_ms: float
    recompute_ms: float
    probe: bool = False


@dataclass(frozen=True, slots=True)
class _MeasuredLoad:
    num_bytes: int
    ms: float


_FREE: Final = (
    _MeasuredLoad(0, 0.0),
    _MeasuredLoad(0, 0.0),
)  # initial loads without cost, so that loading stays on until three loads were slow


class LoadGate:
    """Decides on each load, and learns from it. Before three loads were slow, loads are assumed to cost nothing."""

    __slots__ = ("_last_unix_ms", "_loads", "_ms_per_byte", "_probe_interval_ms", "_probe_sizes", "_rtt_ms")

    def __init__(self, *, probe_interval_ms: float) -> None:
        self._probe_interval_ms = probe_interval_ms
        self._loads: deque[_MeasuredLoad] = deque(maxlen=_REMEMBERED)
        self._rtt_ms = 0.0
        self._ms_per_byte = 0.0
        self._probe_sizes = cycle(_PROBE_BLOCKS)
        self._last_unix_ms = -math.inf  # of the last load or probe

    def load_ms(self, num_bytes: int) -> float:
        """Return the predicted time of a load of this many bytes."""
        return self._rtt_ms + self._ms_per_byte * num_bytes

    def worth_asking(self, recompute_ms: float, now_unix_ms: float) -> bool:
        """Return whether any load could be faster than computing all tokens, or a probe is due."""
        return self._rtt_ms < recompute_ms or self._probe_is_due(now_unix_ms)

    def decide(self, block_bytes: Sequence[int], recompute_ms: float, now_unix_ms: float) -> LoadDecision:
        """Return how many of these blocks to load, from the first.

        Args:
            block_bytes: the blocks' sizes.
            recompute_ms: the time that computing all of them adds to the prefill of the rest of the prompt.
            now_unix_ms: the current time.
        """
        load_ms = self.load_ms(sum(block_bytes))
        if not block_bytes:
            return LoadDecision(0, load_ms, recompute_ms)
        if load_ms < recompute_ms:
            return LoadDecision(len(block_bytes), load_ms, recompute_ms)
        if not self._probe_is_due(now_unix_ms):
            return LoadDecision(0, load_ms, recompute_ms)
        self._last_unix_ms = now_unix_ms
        return LoadDecision(min(next(self._probe_sizes), len(block_bytes)), load_ms, recompute_ms, probe=True)

    def observe(self, num_bytes: int, ms: float, now_unix_ms: float) -> None:
        """Learn that a load of this many bytes took `ms`; a failed load counts with the time until its failure.

        A value that is not a duration is ignored.
        """
        if num_bytes <= 0 or not 0 <= ms < math.inf:
            return
        # A load that was much faster than predicted makes the next probe due immediately, so that loading resumes
        # within a few requests.
        sooner = 2 * ms < self.load_ms(num_bytes)
        self._last_unix_ms = -math.inf if sooner else now_unix_ms
        self._loads.append(_MeasuredLoad(num_bytes, ms))
        self._fit()

    def _probe_is_due(self, now_unix_ms: float) -> bool:
        # if the clock was set back, a probe is due
        return not 0 <= now_unix_ms - self._last_unix_ms < self._probe_interval_ms

    def _fit(self) -> None:
        slopes = _slopes(self._loads) if len(self._loads) >= _RECENT else []
        if slopes:
            self._ms_per_byte = max(0.0, median(slopes))
        recent = [*_FREE, *self._loads][-_RECENT:]
        # A load takes at least as long as its bytes, so fast loads are an upper bound for the time of a byte.
        bound = median_low(load.ms / max(load.num_bytes, 1) for load in recent)
        self._ms_per_byte = min(self._ms_per_byte, bound)
        self._rtt_ms = max(0.0, median_low(load.ms - self._ms_per_byte * load.num_bytes for load in recent))


def _slopes(loads: Sequence[_MeasuredLoad]) -> list[float]:
    """Return the milliseconds for a byte of every pair of loads with sufficiently different sizes."""
    slopes: list[float] = []
    for number, one in enumerate(loads):
        for other in islice(loads, number):
            difference = other.num_bytes - one.num_bytes
            if abs(difference) > _DIFFERENT * max(one.num_bytes, other.num_bytes):
                slopes.append((other.ms - one.ms) / difference)
    return slopes
