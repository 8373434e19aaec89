"""Decide whether stored blocks are worth loading: what a load is going to take against what it saves. Pure.

A load takes `rtt_ms + bytes / bandwidth`, learned from the last loads. Of the tokens to be computed instead, each
attends to all before it and so costs no less than the last. What is gained by loading the first n blocks is therefore
convex in n, and the best n is none or all: that is what is decided.

Robust by medians (Theil–Sen, 1950 and 1968): the time a byte takes is the median slope between pairs of loads, what a
load takes besides is the median of what remains of the last five. One or two stalls among five change nothing, three
slow loads do; as many fast ones change it back, for which a small probe is let through now and then.
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
_DIFFERENT: Final = 0.5  # between loads nearly alike in size, noise outweighs what the bytes take
_PROBE_BLOCKS: Final = (1, 2, 4)  # of different sizes, so that probes alone tell both of the law's numbers


@dataclass(frozen=True, slots=True)
class Decision:
    """Load the first `num_blocks`. `load_ms` and `recompute_ms` are what all of them were predicted to take and to
    save; `probe`: loading is off, and this one sees whether it still has to be."""

    num_blocks: int
    load_ms: float
    recompute_ms: float
    probe: bool = False


@dataclass(frozen=True, slots=True)
class _Load:
    num_bytes: int
    ms: float


_FREE: Final = (
    _Load(0, 0.0),
    _Load(0, 0.0),
)  # as if before the first: what fewer than three loads took is not believed


class LoadGate:
    """Decides on each load, and learns from each. Until three loads have been slow it takes loads to cost nothing."""

    __slots__ = ("_last_unix_ms", "_loads", "_ms_per_byte", "_probe_interval_ms", "_probe_sizes", "_rtt_ms")

    def __init__(self, *, probe_interval_ms: float) -> None:
        self._probe_interval_ms = probe_interval_ms
        self._loads: deque[_Load] = deque(maxlen=_REMEMBERED)
        self._rtt_ms = 0.0
        self._ms_per_byte = 0.0
        self._probe_sizes = cycle(_PROBE_BLOCKS)
        self._last_unix_ms = -math.inf  # of what was learned or is being tried

    def load_ms(self, num_bytes: int) -> float:
        """Return the predicted time of a load of so many bytes."""
        return self._rtt_ms + self._ms_per_byte * num_bytes

    def worth_asking(self, recompute_ms: float, now_unix_ms: float) -> bool:
        """Return whether any load could be sooner than computing all there is to compute, or a probe is due."""
        return self._rtt_ms < recompute_ms or self._probe_is_due(now_unix_ms)

    def decide(self, block_bytes: Sequence[int], recompute_ms: float, now_unix_ms: float) -> Decision:
        """Return how many of these blocks, from the first on, to load. `recompute_ms`: what computing all of them would
        add to the prefill that the rest of the prompt needs anyhow."""
        load_ms = self.load_ms(sum(block_bytes))
        if not block_bytes:
            return Decision(0, load_ms, recompute_ms)
        if load_ms < recompute_ms:
            return Decision(len(block_bytes), load_ms, recompute_ms)
        if not self._probe_is_due(now_unix_ms):
            return Decision(0, load_ms, recompute_ms)
        self._last_unix_ms = now_unix_ms
        return Decision(min(next(self._probe_sizes), len(block_bytes)), load_ms, recompute_ms, probe=True)

    def observe(self, num_bytes: int, ms: float, now_unix_ms: float) -> None:
        """Learn that a load of so many bytes took `ms`; one that was given up counts with the time until then. A time
        that is no time is not learned."""
        if num_bytes <= 0 or not 0 <= ms < math.inf:
            return
        # What came much sooner than predicted calls for the next probe at once: fast again within a few requests.
        sooner = 2 * ms < self.load_ms(num_bytes)
        self._last_unix_ms = -math.inf if sooner else now_unix_ms
        self._loads.append(_Load(num_bytes, ms))
        self._fit()

    def _probe_is_due(self, now_unix_ms: float) -> bool:
        # A clock that was put back is no reason never to probe again.
        return not 0 <= now_unix_ms - self._last_unix_ms < self._probe_interval_ms

    def _fit(self) -> None:
        slopes = _slopes(self._loads) if len(self._loads) >= _RECENT else []
        if slopes:
            self._ms_per_byte = max(0.0, median(slopes))
        recent = [*_FREE, *self._loads][-_RECENT:]
        # A load took no less than its bytes alone would: however slow they once were, fast loads bound it.
        bound = median_low(load.ms / max(load.num_bytes, 1) for load in recent)
        self._ms_per_byte = min(self._ms_per_byte, bound)
        self._rtt_ms = max(0.0, median_low(load.ms - self._ms_per_byte * load.num_bytes for load in recent))


def _slopes(loads: Sequence[_Load]) -> list[float]:
    """Milliseconds a byte, of every pair of loads that differ enough in size."""
    slopes: list[float] = []
    for number, one in enumerate(loads):
        for other in islice(loads, number):
            difference = other.num_bytes - one.num_bytes
            if abs(difference) > _DIFFERENT * max(one.num_bytes, other.num_bytes):
                slopes.append((other.ms - one.ms) / difference)
    return slopes
