"""The evidence that a canary is worse than its control, which may be looked at after every answer. Pure.

A wealth that starts at 1 is bet on "this answer of the canary is bad". While the canary is not worse, no strategy makes
it grow on average, so it ever reaches 1/alpha with a probability of at most alpha, however often one looks (Ville).
Two kinds of bets, each a mixture over bets of several sizes (Waudby-Smith and Ramdas, "Estimating means of bounded
random variables by betting", JRSS-B 2024):

- against the control: the k-th answer of the canary is paired with the control's k-th; fair where the chance of a bad
  one is at most `margin` higher. It needs nothing else: both sides share load, hour and drift.
- against the tolerated share, for what is promised (answers failed, deadlines missed): fair where the canary's chance
  is at most `tolerated` + `margin`. It says nothing while the control itself is above `tolerated`, since that may have
  another cause. The control's own figures need not be learned first: this is the quicker one.

A conversation's answers depend on each other, so that one unlucky customer could look like many. A conversation counts
in a metric up to its first bad answer and no further, and answers are paired with answers of conversations that have
got as far: all that is known of either conversation is then the same, "good until now", and both sides have the same
chance where the canary is not worse.

The weighted mean of such wealths is again one, whatever they have to do with each other (Vovk and Wang, "E-values",
Annals of Statistics 2021): that is how the metrics share alpha.
"""

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from math import log1p
from typing import Final, Literal, get_args

from ops.lifecycle.rollout.plan import Plan
from ops.measure.quantiles import percentile
from shared.wire.messages import Bucket, Observation
from shared.wire.topics import BUCKETS

Metric = Literal["failed", "missed", "slow", "unsure", "rating"]
Side = Literal["canary", "control"]
METRICS: Final[tuple[Metric, ...]] = get_args(Metric)

# Most of alpha is for what can be said soonest, and harms most.
_AGAINST_CONTROL: Final[dict[Metric, float]] = {
    "failed": 0.12,
    "missed": 0.12,
    "slow": 0.06,
    "unsure": 0.06,
    "rating": 0.06,
}
_AGAINST_TOLERATED: Final[dict[Metric, float]] = {"failed": 0.29, "missed": 0.29}
# Bets as shares of the most that can be lost; the second fit a low share of bad answers.
_PAIR_BETS: Final = (0.3, 0.6, 0.8, 0.9)
_SHARE_BETS: Final = (0.15, 0.3)
_MOST_LOG: Final = 600.0
_WAITING: Final = 200
_PRIOR_ANSWERS: Final = 10
_TTFTS: Final = 200
_LEAST_TTFTS: Final = 20
_SLOW: Final = 0.95
_RECENT: Final = 20
_CACHED: Final = 1_024
_RECENT_MS: Final = 60_000


@dataclass(slots=True)
class Tally:
    """One metric: how many answers of each side count, how many of them are bad, and of the pairs how many differ.
    `waiting`, for first and for later answers of conversations, are outcomes of one side that have no partner yet."""

    answers: Counter[Side] = field(default_factory=Counter)
    bad: Counter[Side] = field(default_factory=Counter)
    worse: int = 0
    same: int = 0
    better: int = 0
    waiting: dict[bool, deque[tuple[Side, bool]]] = field(
        default_factory=lambda: {first: deque(maxlen=_WAITING) for first in (True, False)}
    )

    def add(self, side: Side, *, first: bool, bad: bool) -> None:
        self.answers[side] += 1
        self.bad[side] += bad
        waiting = self.waiting[first]
        if not waiting or side == waiting[0][0]:
            waiting.append((side, bad))
            return
        _, other = waiting.popleft()
        canary, control = (bad, other) if side == "canary" else (other, bad)
        self.worse += canary > control
        self.same += canary == control
        self.better += canary < control

    def share(self, side: Side) -> float | None:
        """Return the share of bad answers; None without answers."""
        return self.bad[side] / self.answers[side] if self.answers[side] else None

    def against_control(self, margin: float) -> float:
        """Return the logarithm of the e-value against "worse by at most `margin`"."""
        return _pairs(self.worse, self.same, self.better, margin)

    def against_share(self, tolerated: float, margin: float, *, control: bool) -> float:
        """Return the logarithm of the e-value against "at most `tolerated` + `margin` are bad"."""
        above = self.bad["control"] + 0.5 > tolerated * (self.answers["control"] + _PRIOR_ANSWERS)
        if control and above:
            return -math.inf
        bad = self.bad["canary"]
        return _shares(bad, self.answers["canary"] - bad, tolerated + margin)

    def interval(self, alpha: float) -> tuple[float, float]:
        """Return the bounds of the difference in the shares of bad answers, canary less control: at all times together
        it is within them with a probability of at least 1 - `alpha` (a confidence sequence)."""
        limit = math.log(2 / alpha)
        low = _last(lambda margin: _pairs(self.worse, self.same, self.better, margin) >= limit)
        high = -_last(lambda margin: _pairs(self.better, self.same, self.worse, margin) >= limit)
        return low, high


@dataclass(slots=True)
class _Conversation:
    """`bad` are the metrics in which it counts no more."""

    answers: int = 0
    ratings: int = 0
    last: str = ""
    last_rated: str = ""
    bad: set[Metric] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Ttft:
    side: Side
    talk: _Conversation
    ms: float


@dataclass(slots=True)
class Evidence:
    """All that the observations of a rollout say. `answers` are those of a bucket and side, by epoch."""

    plan: Plan
    tallies: dict[Metric, Tally] = field(default_factory=lambda: {metric: Tally() for metric in METRICS})
    answers: dict[tuple[Bucket, Side], Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    _cold: Counter[Side] = field(default_factory=Counter)
    _conversations: dict[str, _Conversation] = field(default_factory=dict)
    _ttfts: deque[float] = field(default_factory=lambda: deque(maxlen=_TTFTS))
    _waiting_ttfts: dict[bool, deque[_Ttft]] = field(
        default_factory=lambda: {first: deque(maxlen=_WAITING) for first in (True, False)}
    )
    _control: deque[tuple[int, bool]] = field(default_factory=lambda: deque(maxlen=_RECENT))

    def add(self, seen: Observation) -> None:
        """Take the next observation. One of another version, of an answer that was begun before the rollout, or that
        has been counted, changes nothing."""
        side = self._side(seen)
        if side is None:
            return
        talk = self._conversations.setdefault(seen.conversation, _Conversation())
        if seen.rating is not None:
            self._add_rating(side, talk, seen)
        elif seen.response_id != talk.last:
            self._add_answer(side, talk, seen)

    def _side(self, seen: Observation) -> Side | None:
        if seen.epoch < self.plan.epoch:
            return None
        if seen.lane == "canary" and seen.revision == self.plan.version:
            return "canary"
        return "control" if seen.lane == "control" and seen.revision == self.plan.champion else None

    def _add_rating(self, side: Side, talk: _Conversation, seen: Observation) -> None:
        if seen.response_id != talk.last_rated:
            talk.last_rated = seen.response_id
            talk.ratings += 1
            self._tally(side, talk, "rating", first=talk.ratings == 1, bad=seen.rating == "down")

    def _add_answer(self, side: Side, talk: _Conversation, seen: Observation) -> None:
        talk.last = seen.response_id
        if self._cold[side] < self.plan.warmup:
            self._cold[side] += 1
            return
        talk.answers += 1
        first = talk.answers == 1
        self.answers[seen.bucket, side][seen.epoch] += 1
        self._tally(side, talk, "failed", first=first, bad=seen.failed)
        self._tally(side, talk, "missed", first=first, bad=seen.missed)
        self._tally(side, talk, "unsure", first=first, bad=seen.unsure)
        if seen.ttft_ms is not None and "slow" not in talk.bad:
            self._add_ttft(_Ttft(side, talk, seen.ttft_ms), first=first)
        if side == "control":
            self._control.append((seen.unix_ms, seen.failed or seen.missed))

    def _add_ttft(self, ttft: _Ttft, *, first: bool) -> None:
        """Take the time to a first text. It is slow by the control's p95 of the pairs before its own: both of a pair
        are judged by one limit, which neither has moved."""
        waiting = self._waiting_ttfts[first]
        if not waiting or waiting[0].side == ttft.side:
            waiting.append(ttft)
            return
        pair = (waiting.popleft(), ttft)
        if len(self._ttfts) >= _LEAST_TTFTS and not any("slow" in each.talk.bad for each in pair):
            limit_ms = percentile(sorted(self._ttfts), _SLOW)
            for each in pair:
                self._tally(each.side, each.talk, "slow", first=first, bad=each.ms > limit_ms)
        self._ttfts.extend(each.ms for each in pair if each.side == "control")

    def _tally(self, side: Side, talk: _Conversation, metric: Metric, *, first: bool, bad: bool) -> None:
        if metric not in talk.bad:
            self.tallies[metric].add(side, first=first, bad=bad)
        if bad:
            talk.bad.add(metric)

    def log_e(self, metric: Metric) -> float:
        """Return the logarithm of a metric's e-value: the mean of its tests."""
        return _mean(self._tests(metric))

    @property
    def log_total(self) -> float:
        """Return the logarithm of the whole evidence's e-value."""
        return _mean([test for metric in METRICS for test in self._tests(metric)])

    @property
    def alarm(self) -> bool:
        """Return whether the canary is worse, as far as `alpha` allows to say."""
        return self.log_total >= -math.log(self.plan.alpha)

    def numbers(self) -> dict[str, float]:
        """Return the figures that a decision is recorded with: e-values, answers and shares of bad ones."""
        figures = {"e": _shown(self.log_total)}
        for metric in METRICS:
            figures[f"e_{metric}"] = _shown(self.log_e(metric))
            for side in get_args(Side):
                if (share := self.tallies[metric].share(side)) is not None:
                    figures[f"{metric}_{side}"] = round(share, 4)
        return figures | {f"answers_{side}": float(self.answered(side)) for side in get_args(Side)}

    def answered(self, side: Side, *, bucket: Bucket | None = None, since_epoch: int = 0) -> int:
        """Return how many answers count, of one bucket or all, asked under an epoch or later."""
        buckets = BUCKETS if bucket is None else (bucket,)
        found = [self.answers[of, side] for of in buckets if (of, side) in self.answers]
        return sum(count for counts in found for epoch, count in counts.items() if epoch >= since_epoch)

    def control_bad(self, now_unix_ms: float) -> float | None:
        """Return the share of the control's recent answers that failed or missed; None where they are too few."""
        recent = [bad for unix_ms, bad in self._control if now_unix_ms - unix_ms <= _RECENT_MS]
        return sum(recent) / len(recent) if len(recent) == _RECENT else None

    def _tests(self, metric: Metric) -> list[tuple[float, float]]:
        """Return each test's weight and logarithm. Without a control, only that of the tolerated share."""
        plan, tally, tests = self.plan, self.tallies[metric], []
        if plan.control:
            tests.append((_AGAINST_CONTROL[metric], tally.against_control(plan.margin)))
        if metric in _AGAINST_TOLERATED:
            log = tally.against_share(plan.tolerated, plan.margin, control=plan.control)
            tests.append((_AGAINST_TOLERATED[metric], log))
        return tests


@lru_cache(_CACHED)
def _pairs(worse: int, same: int, better: int, margin: float) -> float:
    """Return the logarithm of the wealth of bets on pairs."""
    bets = [bet / (1 + margin) for bet in _PAIR_BETS]
    return _mean(
        [
            (1.0, worse * log1p(bet * (1 - margin)) + same * log1p(-bet * margin) + better * log1p(-bet * (1 + margin)))
            for bet in bets
        ]
    )


@lru_cache(_CACHED)
def _shares(bad: int, good: int, limit: float) -> float:
    """Return the logarithm of the wealth of bets on answers, fair where `limit` of them are bad."""
    bets = [bet / limit for bet in _SHARE_BETS]
    return _mean([(1.0, bad * log1p(bet * (1 - limit)) + good * log1p(-bet * limit)) for bet in bets])


def _mean(weighted: list[tuple[float, float]]) -> float:
    """Return the logarithm of the weighted mean of numbers, by their logarithms; of none, of 1."""
    most = max((log for _, log in weighted), default=0.0)
    if not weighted or most == -math.inf:
        return 0.0 if not weighted else -math.inf
    total = sum(weight * math.exp(log - most) for weight, log in weighted)
    return most + math.log(total / sum(weight for weight, _ in weighted))


def _last(holds: Callable[[float], bool]) -> float:
    """Return the largest difference for which it holds; -1 where for none. It holds below wherever it holds."""
    low, high = -1.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _shown(log: float) -> float:
    return float(f"{math.exp(min(log, _MOST_LOG)):.4g}")
