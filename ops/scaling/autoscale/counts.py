"""Rates of what was counted: what is asked, judged and answered in time a second. Pure."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

MINUTE_MS: Final = 60_000.0
_BURST_MS: Final = 10_000.0
_LEAST_SPAN_MS: Final = 1.0


class Sample(NamedTuple):
    """Counts at a moment. They only grow."""

    unix_ms: float
    work_ms: float = 0.0
    requests: float = 0
    judged: float = 0
    in_time: float = 0

    def since(self, before: "Sample", least_ms: float) -> "Sample":
        """Return the differences from an earlier sample, a second."""
        span_s = max(self.unix_ms - before.unix_ms, least_ms) / 1_000
        return Sample(self.unix_ms, *((now - then) / span_s for now, then in zip(self[1:], before[1:], strict=True)))


@dataclass(slots=True)
class Counts:
    """The samples of a counter in the last minute, oldest first. `whole`: it counts from its first request, so nothing
    was asked before its first sample."""

    samples: deque[Sample]
    whole: bool

    def add(self, sample: Sample) -> None:
        """Add a sample. Earlier samples with a later time are dropped: the sender's clock was wrong, or is now."""
        while self.samples and self.samples[-1].unix_ms > sample.unix_ms:
            self.samples.pop()
        self.samples.append(sample)
        while len(self.samples) > 1 and self.samples[1].unix_ms <= sample.unix_ms - MINUTE_MS:
            self.samples.popleft()

    def rates(self, window_ms: float) -> Sample:
        """Return what was counted a second in the last `window_ms`."""
        last = self.samples[-1]
        before = next((each for each in reversed(self.samples) if each.unix_ms <= last.unix_ms - window_ms), None)
        return last.since(before or self.samples[0], window_ms if self.whole else _LEAST_SPAN_MS)


def asked_work(counters: Sequence[Counts]) -> float:
    """Return the work a second that is asked: the mean of the last minute, or the mean of the last ten seconds if it is
    more, also minus what may be chance with this few requests."""
    minute = sum(each.rates(MINUTE_MS).work_ms for each in counters) / 1_000
    lately = [each.rates(_BURST_MS) for each in counters]
    requests = sum(each.requests for each in lately) * _BURST_MS / 1_000
    sure = 1.0 - 2.0 / math.sqrt(requests) if requests > 0 else 0.0
    return max(minute, sure * sum(each.work_ms for each in lately) / 1_000)
