"""Detect that a canary is worse, however late it becomes so, with one bound on false alarms for a whole rollout. Pure.

A detector bets on "the canary's answer is bad, and its control's is not". While the canary is not worse, no bet makes
the wealth grow on average. It starts at 1, so it ever reaches 1/alpha with a probability of at most alpha, however
often one looks (Ville; Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", 2024).

A bet that runs from the first answer on loses by each good one, and would find late damage late. Therefore this is an
e-detector, a sum of bets that start at different times (Shin, Ramdas and Rinaldo, "E-detectors", 2024). A bet starts
after a bad answer of the canary, when the bets before it have lost their stakes; good answers start none and cost
nothing. The stakes of all starts add up to 1, so the sum keeps the bound of alpha over a rollout of any length. The
usual bound of an e-detector, its average run length, would only say how often it errs, not whether this rollout is
rolled back by mistake. The price: after n bad answers of the canary the alarm needs 1.5 log n more of growth. If 1 % of
both sides' 10,000 answers before were bad, a canary that fails all has its alarm after 11 answers instead of 4, and one
that fails 30 % after 71 instead of 27 (medians of 200); after 200,000 15 and 83, after good ones alone 6 and 35.

A pair is one answer of the canary and one of the control, given at about the same time, each bad independently of the
other. Each bet is the likelihood ratio between one chance of bad answers on either side and the nearest chances that
the null hypothesis allows: its mean is at most 1 for every chance that both sides share, also while that changes
(Turner, Ly and Gruenwald, "Generic E-variables for exact sequential k-sample tests", 2024). One pair multiplies the
wealth by less than 4, so that no alarm comes before four answers of the control.

The bound is that of these bets. The hard stop at 25 lost customers of a class (`Losses`) is outside of it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

# The canary's chances of bad answers beyond the margin, the control's, and the shares of the stake that are bet on
# them. A control that happens to be bad in a small class costs the second bet little.
_CHANCES: Final = ((0.98, 0.01, 0.38), (0.98, 0.2, 0.12), (0.32, 0.01, 0.43), (0.1, 0.01, 0.07))
_FIRST_STAKE: Final = 0.5
# What a bet of `Losses` wins for each lost conversation, and the most for a cause: the chance of its side is a half.
_GAINS: Final = (0.7, 0.12, 0.03)
_MOST_GAIN: Final = 0.95
_MOST_WEALTH: Final = 1e200
_HIGHEST_LIMIT: Final = 0.99


@dataclass(frozen=True, slots=True)
class Bet:
    """`factors[canary][control]`: by what an outcome multiplies the wealth; True is a bad answer."""

    stake: float
    factors: tuple[tuple[float, float], tuple[float, float]]


@lru_cache
def pair_bets(margin: float) -> tuple[Bet, ...]:
    """Return bets against "the canary's chance of a bad answer is at most `margin` above the control's"."""
    bets = ((stake, margin + (1 - margin) * chance, control) for chance, control, stake in _CHANCES)
    return tuple(_pair_bet(stake, canary, control, margin) for stake, canary, control in bets)


@lru_cache
def share_bets(limit: float) -> tuple[Bet, ...]:
    """Return bets against "the canary's chance of a bad answer is at most `limit`", for a rollout without a control."""
    limit = min(limit, _HIGHEST_LIMIT)
    bets = []
    for chance, _, stake in _CHANCES:
        expected = limit + (1 - limit) * chance
        good, bad = (1 - expected) / (1 - limit), expected / limit
        bets.append(Bet(stake, ((good, good), (bad, bad))))
    return tuple(bets)


def _pair_bet(stake: float, canary: float, control: float, margin: float) -> Bet:
    """Return the likelihood ratio of the chances `canary` and `control` to the nearest of the null hypothesis,
    `null` + `margin` and `null`. There the mean of the ratio, a concave function of `null`, has its maximum, 1."""
    low, high = control, canary - margin
    for _ in range(50):
        null = (low + high) / 2
        above = null + margin
        rises = (canary - above) / (above * (1 - above)) > (null - control) / (null * (1 - null))
        low, high = (null, high) if rises else (low, null)
    of_canary = ((1 - canary) / (1 - above), canary / above)
    of_control = ((1 - control) / (1 - null), control / null)
    good, bad = ((mine * of_control[0], mine * of_control[1]) for mine in of_canary)
    return Bet(stake, (good, bad))


@dataclass(slots=True)
class Detector:
    """The wealth of all bets that were started, by bet, and how often each was started again."""

    bets: Sequence[Bet]
    _wealth: list[float] = field(init=False)
    _restarts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._wealth = [bet.stake * _FIRST_STAKE for bet in self.bets]
        self._restarts = [0] * len(self.bets)

    def add(self, *, canary_bad: bool, control_bad: bool = False) -> None:
        """Take the next pair's outcome, or the canary's alone."""
        for at, bet in enumerate(self.bets):
            wealth = min(self._wealth[at] * bet.factors[canary_bad][control_bad], _MOST_WEALTH)
            if canary_bad and not control_bad:
                stake = bet.stake * (_reserve(self._restarts[at]) - _reserve(self._restarts[at] + 1))
                if wealth < stake:
                    wealth += stake
                    self._restarts[at] += 1
            self._wealth[at] = wealth

    @property
    def log_e(self) -> float:
        """Return the logarithm of the e-value, which is the sum of all wealth and of the stakes not yet bet."""
        unused = sum(bet.stake * _reserve(times) for bet, times in zip(self.bets, self._restarts, strict=True))
        return math.log(sum(self._wealth) + unused)


@dataclass(slots=True, eq=False)
class Cause:
    """Why answers of one side went bad together: a crash, a worker that hung. `lost` counts its conversations. `pair`
    is the number of the pair in which its first answer was judged; 0 before."""

    lost: int = 1
    pair: int = 0


@dataclass(slots=True)
class Losses:
    """Bets on "the canary loses more conversations than its control and the margin allow", however many a cause loses.

    Equal versions have a cause on either side as a coin falls: a bet wins on the canary's side what it loses on the
    control's, at most its wealth, and pays for the margin with each pair. So its wealth does not grow on average, also
    if the sides answer unequally often, since of each pair both sides are judged once. A bet starts after a cause of
    the canary, as those of a `Detector`. What a cause loses besides counts for the bets that are older than it."""

    margin: float
    _wealth: list[float] = field(default_factory=lambda: [_FIRST_STAKE / len(_GAINS)] * len(_GAINS))
    _restarts: list[int] = field(default_factory=lambda: [0] * len(_GAINS))
    _began: list[int] = field(default_factory=lambda: [0] * len(_GAINS))
    _pairs: int = 0

    def add(self, canary: Cause | None, control: Cause | None) -> None:
        """Take the next pair: of each side why its answer is bad, None if it is good."""
        self._pairs += 1
        for cause in (canary, control):
            if cause is not None:
                cause.pair = self._pairs
        for at, gain in enumerate(_GAINS):
            wealth = self._wealth[at] * math.exp(-gain * self.margin)
            wealth *= 1.0 if canary is None else 1 + _won(gain, canary.lost)
            wealth *= 1.0 if control is None else 1 - _won(gain, control.lost)
            if canary is not None and control is None:
                stake = (_reserve(self._restarts[at]) - _reserve(self._restarts[at] + 1)) / len(_GAINS)
                if wealth < stake:
                    wealth += stake
                    self._restarts[at] += 1
                    self._began[at] = self._pairs
            self._wealth[at] = min(wealth, _MOST_WEALTH)

    def grow(self, cause: Cause, sign: int) -> None:
        """Take one more conversation that a judged cause of the canary (`sign` 1) or the control (-1) has lost."""
        for at, gain in enumerate(_GAINS):
            if cause.pair > self._began[at]:
                grown = (1 + sign * _won(gain, cause.lost)) / (1 + sign * _won(gain, cause.lost - 1))
                self._wealth[at] = min(self._wealth[at] * grown, _MOST_WEALTH)

    @property
    def log_e(self) -> float:
        """Return the logarithm of the e-value."""
        return math.log(sum(self._wealth) + sum(map(_reserve, self._restarts)) / len(_GAINS))


def _won(gain: float, lost: int) -> float:
    return min(gain * lost, _MOST_GAIN)


def _reserve(restarts: int) -> float:
    """Return the share of the stake that is left after `restarts`."""
    return (1 - _FIRST_STAKE) / math.sqrt(restarts + 1)
