"""A circuit breaker between a gateway and a worker, or all workers of a lane. Pure.

    CLOSED → OPEN → HALF_OPEN → CLOSED or OPEN

It measures the time from a request's receipt to a worker's first reply: the first text, or a terminal event without
text. Whole answers are not measured, because their time depends on the length asked for; nor are first texts alone,
because the fallback cuts those off at the deadline. A request that a worker refuses in time, as it must under load, is
no fault. A request without a reply counts as late once it has waited too long.

The P99 is above its threshold if more than one reply in a hundred of the window is late (M. Nygard, Release It!, who
also defines the states). Closing requires more than staying closed: every probe's reply within `close_ratio` of the
threshold.
"""

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Final

_PER_HUNDRED: Final = 100
# One late reply among fifty is no evidence of a high P99.
_FEWEST_LATE: Final = 5
_SLICES: Final = 30


class BreakerState(Enum):
    CLOSED = "closed"
    HALF_OPEN = "half-open"
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerPolicy:
    """The limits of a breaker.

    Attributes:
        window_ms: length of the window
        fewest_words: with fewer first replies in the window, the breaker does not open
        late_per_hundred: it opens if more than this many of a hundred are late
        open_ms: how long only the fallback answers once it is open
        num_probes: the breaker closes after this many probes, if all are in time
        close_ratio: a probe is in time within this share of its threshold
    """

    window_ms: float = 30_000.0
    fewest_words: int = 20
    late_per_hundred: int = 1
    open_ms: float = 5_000.0
    num_probes: int = 5
    close_ratio: float = 0.8


@dataclass(slots=True)
class _Slice:
    """A thirtieth of the window."""

    start_unix_ms: float
    words: int = 0
    late: int = 0


class Breaker:
    """Counts first replies. `words` and `late` are the counts of the window; once the breaker is open, those that
    opened it."""

    def __init__(self, policy: BreakerPolicy) -> None:
        self._policy = policy
        self.state = BreakerState.CLOSED
        self.words = 0
        self.late = 0
        self._slices: deque[_Slice] = deque()
        self._opened_unix_ms = 0.0
        self._episode = 0
        self._probes_out = 0
        self._probes_good = 0

    def allows(self, now_unix_ms: float) -> bool:
        """Return whether a request may be sent now. Half-opens an open breaker after `open_ms`."""
        if self.state is BreakerState.CLOSED:
            return True
        if self.state is BreakerState.OPEN:
            if 0 <= now_unix_ms - self._opened_unix_ms < self._policy.open_ms:
                return False
            self.state = BreakerState.HALF_OPEN
            self._episode += 1
            self._probes_out = self._probes_good = 0
        return self._probes_out + self._probes_good < self._policy.num_probes

    def record_send(self) -> int | None:
        """Count a sent request, which `allows` permitted. Return the half-open episode that it probes, or None if it is
        no probe."""
        if self.state is BreakerState.CLOSED:
            return None
        if self.state is BreakerState.OPEN:
            raise AssertionError("the breaker is open: call `allows` first")
        self._probes_out += 1
        return self._episode

    def withdraw(self, probe: int | None) -> None:
        """Remove a request that did not reach the workers after all."""
        if self._counts(probe):
            self._probes_out -= 1

    def measured(self, *, took_ms: float, threshold_ms: float, probe: int | None, now_unix_ms: float) -> None:
        """Count a request's time to its first reply, or the time that it has waited without one."""
        if self._counts(probe):
            self._probes_out -= 1
            self._judge_probe(took_ms <= threshold_ms * self._policy.close_ratio, now_unix_ms)
        elif self.state is BreakerState.CLOSED:  # otherwise it was sent before the breaker opened and adds no evidence
            self._count(took_ms > threshold_ms, now_unix_ms)
            enough = self.words >= self._policy.fewest_words and self.late >= _FEWEST_LATE
            if enough and self.late * _PER_HUNDRED > self.words * self._policy.late_per_hundred:
                self._open(now_unix_ms)

    def _counts(self, probe: int | None) -> bool:
        return self.state is BreakerState.HALF_OPEN and probe == self._episode

    def _judge_probe(self, good: bool, now_unix_ms: float) -> None:
        if not good:
            self._open(now_unix_ms)
            return
        self._probes_good += 1
        if self._probes_good == self._policy.num_probes:
            self.state = BreakerState.CLOSED
            self.words = self.late = 0

    def _open(self, now_unix_ms: float) -> None:
        self.state = BreakerState.OPEN
        self._opened_unix_ms = now_unix_ms
        self._slices.clear()

    def _count(self, late: bool, now_unix_ms: float) -> None:
        window_ms = self._policy.window_ms
        last = self._slices[-1].start_unix_ms if self._slices else None
        if last is not None and now_unix_ms < last - window_ms:  # the clock was set back
            self._slices.clear()
            self.words = self.late = 0
            last = None
        if last is None or now_unix_ms >= last + window_ms / _SLICES:
            self._slices.append(_Slice(now_unix_ms))
        self._slices[-1].words += 1
        self._slices[-1].late += late
        self.words += 1
        self.late += late
        while self._slices[0].start_unix_ms <= now_unix_ms - window_ms:
            gone = self._slices.popleft()
            self.words -= gone.words
            self.late -= gone.late
