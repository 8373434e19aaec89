"""Predict the number of tokens of an answer from ended answers of its class. Pure.

An answer that was cut (deadline, cancel, its token limit) shows only that it would have been at least that long.
Ignoring such answers, or counting them as complete, would predict too little, so the distribution is estimated through
the hazard (Kaplan and Meier, J. Am. Stat. Assoc. 53, 1958): of the answers known to have reached a length, how many
ended there? For lengths that few or no answers reached, the class's mean hazard is used: a geometric tail.

Older answers count less. A class stores three numbers for each bin, regardless of the number of its answers.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

SHOWN: Final = "shown:"
"""Prefix of a class's key for the number of tokens after which its answers' first text is shown."""
MIN_OBSERVED: Final = 20
"""A class with fewer answers is predicted by the prior."""

_EXACT_LENGTHS: Final = 32  # below it each length has a bin; above it a bin's width is a sixteenth of its lengths
_REFRESH_EVERY: Final = 8
_TAIL_ANSWERS: Final = 1.0  # number of answers at risk that the mean hazard counts for
_MAX_CLASSES: Final = 256
_MAX_WEIGHT: Final = 1e12
_ROUNDING: Final = 1e-9
_QUANTILE: Final = "a quantile lies between 0 and 1"


def prior_quantile(max_output_tokens: int, quantile: float) -> int:
    """Return the length while nothing is known: half of the limit at the median, the limit from the quantile 0.75
    on."""
    assert 0 < quantile < 1, _QUANTILE
    share = quantile if quantile <= 0.5 else min(2 * quantile - 0.5, 1.0)  # noqa: PLR2004 - the median
    return max(1, math.ceil(share * max_output_tokens))


@dataclass(slots=True)
class _Class:
    """The answers of one class.

    Attributes:
        ended: weight of the complete answers in each bin.
        cut: weight of the cut answers in each bin.
        weight: weight of the newest answer; older ones weigh less.
        at_risk: weighted number of all answers.
        tokens: weighted number of their tokens.
        hazard: cumulative hazard before each bin.
        unread: answers since `hazard` was computed.
        found: lengths read from `hazard`, by tokens generated and quantile.
    """

    ended: list[float]
    cut: list[float]
    weight: float = 1.0
    num_answers: int = 0
    at_risk: float = 0.0
    tokens: float = 0.0
    unread: int = 0
    hazard: list[float] = field(default_factory=list)
    found: dict[tuple[int, float], int | None] = field(default_factory=dict)


class OutputLengths:
    """Length distributions by class.

    Args:
        longest: longer answers count as this long.
        memory: an answer this many answers ago counts for 1/e.
    """

    def __init__(self, *, longest: int = 4_096, memory: int = 500) -> None:
        self._first_of_bin = _bins(longest)  # and one after the last
        self._widths = [after - first for first, after in pairwise(self._first_of_bin)]
        self._longest = longest
        self._growth = math.exp(1 / memory)
        self._classes: dict[str, _Class] = {}

    def observe(self, key: str, output_tokens: int, ended_by_itself: bool) -> None:
        """Learn that an answer is over after `output_tokens`. `ended_by_itself`: False if it was cut there."""
        known = self._classes.pop(key, None)
        if known is None:
            if len(self._classes) == _MAX_CLASSES:
                del self._classes[next(iter(self._classes))]
            num_bins = len(self._first_of_bin) - 1
            known = _Class([0.0] * num_bins, [0.0] * num_bins)
        self._classes[key] = known  # last, so that the class that was without an answer for longest is forgotten first
        length = min(max(output_tokens, 1), self._longest)
        known.weight *= self._growth
        known.num_answers += 1
        known.at_risk += known.weight
        known.tokens += known.weight * length
        known.unread += 1
        counts = known.ended if ended_by_itself else known.cut
        counts[self._bin_of(length)] += known.weight
        if known.weight > _MAX_WEIGHT:
            _rescale(known)

    def knows(self, key: str) -> bool:
        """Return whether enough answers of the class have ended; otherwise predictions come from the prior."""
        known = self._classes.get(key)
        return known is not None and known.num_answers >= MIN_OBSERVED

    def predict(self, key: str, max_output_tokens: int, quantile: float) -> int:
        """Return the length that a share `quantile` of such answers does not exceed: 1 to `max_output_tokens`."""
        return self.remaining(key, 0, max_output_tokens, quantile)

    def remaining(self, key: str, generated: int, max_output_tokens: int, quantile: float) -> int:
        """Return the number of tokens still to come at that quantile, after `generated`.

        It is 1 to `max_output_tokens - generated`, and 0 only at the limit.
        """
        left = max_output_tokens - generated
        if left <= 0:
            return 0
        known = self._classes.get(key)
        if known is None or known.num_answers < MIN_OBSERVED:
            return prior_quantile(left, quantile)
        if known.unread >= _REFRESH_EVERY or not known.hazard:
            self._refresh(known)
        try:
            length = known.found[generated, quantile]
        except KeyError:
            length = known.found[generated, quantile] = self._length_at(known.hazard, generated, quantile)
        if length is None or length >= max_output_tokens:
            return left
        return length - generated if length > generated else 1

    def _length_at(self, hazard: list[float], generated: int, quantile: float) -> int | None:
        """Return the length at which a share `quantile` of those longer than `generated` has ended."""
        assert 0 < quantile < 1, _QUANTILE
        firsts = self._first_of_bin
        if generated + 1 > self._longest:
            return None
        start = self._bin_of(generated + 1)
        within = (generated + 1 - firsts[start]) / (firsts[start + 1] - firsts[start])
        before = hazard[start] + (hazard[start + 1] - hazard[start]) * within
        target = before - math.log1p(-quantile) - _ROUNDING
        end = bisect_left(hazard, target, start + 1)
        if end == len(hazard):
            return None
        low, high, first = hazard[end - 1], hazard[end], firsts[end - 1]
        tokens = math.ceil((target - low) / (high - low) * (firsts[end] - first) - _ROUNDING)
        return first + max(tokens, 1) - 1

    def _refresh(self, known: _Class) -> None:
        """Compute the cumulative hazard over the bins. An answer cut in a bin is not counted as having passed it."""
        known.unread = 0
        known.found.clear()
        ended = sum(known.ended)
        mean_hazard = -math.log1p(-ended / (known.tokens + ended))
        tail = _TAIL_ANSWERS * known.weight
        at_risk, total = known.at_risk, 0.0
        known.hazard = hazard = [0.0]
        for ends, cuts, width in zip(known.ended, known.cut, self._widths, strict=True):  # runs for every eighth answer
            at_risk -= cuts
            if at_risk < ends:  # noqa: PLR1730 - a call would cost more than the comparison
                at_risk = ends
            within = tail / (at_risk + tail) * mean_hazard * width
            total += within - math.log1p(-ends / (at_risk + tail)) if ends else within
            hazard.append(total)
            at_risk -= ends

    def _bin_of(self, length: int) -> int:
        return bisect_left(self._first_of_bin, length + 1) - 1


def _bins(longest: int) -> list[int]:
    """Return the first length of each bin, and one after the last."""
    firsts = [1]
    while firsts[-1] <= longest:
        firsts.append(firsts[-1] + max(1, firsts[-1] // (_EXACT_LENGTHS // 2)))
    firsts[-1] = longest + 1
    return firsts


def _rescale(known: _Class) -> None:
    """Divide all weights by the newest before they overflow: weights grow with time instead of old ones shrinking."""
    weight, known.weight = known.weight, 1.0
    known.ended = [value / weight for value in known.ended]
    known.cut = [value / weight for value in known.cut]
    known.at_risk /= weight
    known.tokens /= weight
