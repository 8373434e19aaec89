"""Correct what a worker is believed to carry by what the gateways measured. Pure.

The curve of a worker is simulated, so it can be wrong: other hardware, longer prompts, a noisy neighbour. Each minute
the gateways report how many requests were judged and how many of them were answered in time. `Trust` compares that with
what the curve predicts for the load of that minute, and scales the curve's load axis until both agree.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

Curve = Callable[[float], float]
"""Return the share that a worker answers in time, by the work that it is asked (machine seconds a second)."""

BOUNDS: Final = (1 / 16, 16.0)
_STEP: Final = 0.3  # at most this share less after one correction
_STEP_UP: Final = 0.1  # more workers cost less than late answers: trust grows slowly
_MINUTE_MS: Final = 60_000.0
_MINUTES: Final = 16  # measured minutes that are kept
_UP_INTERVAL_MS: Final = 600_000.0
_SIGMAS: Final = 3.5
_DISPERSION: Final = 4.0  # the variance of late answers by that of independent ones: they come in bursts
_LEAST_CHANGE: Final = 0.03
_LESS_LOAD: Final = 0.85
_LEAST_GAIN: Final = 0.25
_HALVINGS: Final = 30


class Measured(NamedTuple):
    """A minute: the work that each worker was asked, the requests that were judged, and those answered in time."""

    load: float
    judged: int
    in_time: int


@dataclass(slots=True)
class Trust:
    """`factor` is what a worker carries as a share of what the curve says. It falls only while less than the `goal` is
    answered in time, and not where earlier growth did not help: then the cause is not a lack of workers."""

    curve: Curve
    goal: float
    factor: float = 1.0
    futile: bool = False
    _minutes: deque[Measured] = field(default_factory=lambda: deque(maxlen=_MINUTES))
    _noted_ms: float | None = None
    _found: int | None = None
    _corrected_ms: float = -math.inf
    _before: Measured | None = None  # the minutes of the last correction that lowered the factor

    def share(self, load: float) -> float:
        """Return the share in time that is expected at a load."""
        return self.curve(load / self.factor)

    def rebase(self, curve: Curve) -> None:
        """Take the curve of a new simulation. It may explain what was measured, so little is kept of the correction."""
        self.curve, self.futile, self._before = curve, False, None
        self.factor = min(max(self.factor, 1 - _STEP), 1 + _STEP)
        self._minutes.clear()

    def note(self, asked: float, found: int, judged: int, in_time: int, now_ms: float) -> bool:
        """Take a minute's counts, once a minute; return whether the factor changed. A minute in which workers came or
        went is left out."""
        if self._noted_ms is not None and 0 <= now_ms - self._noted_ms < _MINUTE_MS:
            if found != self._found:
                self._found = None
            return False
        steady, self._found, self._noted_ms = found == self._found, found, now_ms
        if not steady or found <= 0 or judged <= 0:
            return False
        self._minutes.append(Measured(asked / found, judged, min(max(in_time, 0), judged)))
        return self._lower(now_ms) or self._raise(now_ms)

    def _lower(self, now_ms: float) -> bool:
        """Lower the factor by the shortest stretch of late minutes that are no chance."""
        length = 1
        while length <= len(self._minutes):
            recent = list(self._minutes)[-length:]
            total = _sum(recent)
            if total.in_time < self.goal * total.judged and self._deviation(recent) > _SIGMAS:
                self.futile = self._is_futile(total)
                changed = not self.futile and self._fit(recent, self.factor * (1 - _STEP), self.factor, now_ms)
                if changed:
                    self._before = total
                return changed
            length *= 2
        return False

    def _raise(self, now_ms: float) -> bool:
        """Raise the factor where all kept minutes together answered more in time than expected."""
        recent = list(self._minutes)
        if now_ms - self._corrected_ms < _UP_INTERVAL_MS or self._deviation(recent) >= -_SIGMAS:
            return False
        self.futile, self._before = False, None
        return self._fit(recent, self.factor, self.factor * (1 + _STEP_UP), now_ms)

    def _is_futile(self, now: Measured) -> bool:
        """Return whether a lower load than at the last correction has not brought the share nearer to the goal."""
        if self._before is None or now.load > _LESS_LOAD * self._before.load:
            return self.futile and self._before is not None
        then, share = self._before.in_time / self._before.judged, now.in_time / now.judged
        return share < then + _LEAST_GAIN * (self.goal - then)

    def _deviation(self, minutes: Sequence[Measured]) -> float:
        """Return how many standard deviations fewer were in time than expected."""
        expected = [self.share(each.load) for each in minutes]
        missing = sum(each.judged * share - each.in_time for each, share in zip(minutes, expected, strict=True))
        variance = sum(each.judged * share * (1 - share) for each, share in zip(minutes, expected, strict=True))
        return missing / math.sqrt(_DISPERSION * variance + 1.0)

    def _fit(self, minutes: Sequence[Measured], low: float, high: float, now_ms: float) -> bool:
        """Set the factor between the bounds at which the curve says what was measured."""
        low, high = max(low, BOUNDS[0]), min(high, BOUNDS[1])
        answered = _sum(minutes).in_time
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            said = sum(each.judged * self.curve(each.load / middle) for each in minutes)
            low, high = (middle, high) if said < answered else (low, middle)
        if abs(high / self.factor - 1) < _LEAST_CHANGE:
            return False
        self.factor, self._corrected_ms = high, now_ms
        return True


def _sum(minutes: Sequence[Measured]) -> Measured:
    """Return all minutes as one; its load is the mean by requests."""
    judged = sum(each.judged for each in minutes)
    load = sum(each.load * each.judged for each in minutes) / max(judged, 1)
    return Measured(load, judged, sum(each.in_time for each in minutes))
