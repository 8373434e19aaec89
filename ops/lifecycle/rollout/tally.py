"""Count the answers of both sides in one metric, and judge them in pairs. Pure."""

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from math import log1p
from typing import Final, Literal, get_args

from ops.lifecycle.rollout.detector import Cause, Detector, Losses, pair_bets, share_bets
from ops.lifecycle.rollout.plan import Plan

Side = Literal["canary", "control"]
Metric = Literal["failed", "missed", "slow", "unsure", "rating", "cancelled", "handed_over"]
METRICS: Final[tuple[Metric, ...]] = get_args(Metric)

# So many answers of one side wait for a partner: both of a pair belong to one moment. With more, answers of an outage
# would be paired with answers after it.
WAITING: Final = 2
# A crash ends all running answers of its side within a second, one after another at short gaps.
_ONE_CAUSE_MS: Final = 1_000
_CRASH_GAP_MS: Final = 300
# Answers of one side that end within this time waited in the same queue: one of them says how long it was.
_ONE_QUEUE_MS: Final = 10_000
# Customers that a class may lose beyond the control's, and the e-value that says that this is no chance.
_MOST_LOST: Final = 25
_CERTAIN: Final = math.log(2_000)
_OF_LOSSES: Final = "missed"  # what failed has missed its deadline too
_BETS: Final = (0.3, 0.6, 0.8, 0.9)
_CACHED: Final = 1_024


@dataclass(slots=True)
class Tally:
    """One metric of the class `of`, which has a share of alpha: how many answers of each side count, how many of them
    are bad, and of the pairs how many differ. `waiting`, for first and for later answers of conversations, are outcomes
    of one side without a partner: why it is bad, None if it is good. `causes` has the times of the first and the last
    answer of each side's latest cause, in Unix ms (`_has_known_cause`), and `latest` these causes. `lost_beyond` counts
    the conversations that the canary has lost beyond its control's and the margin since these were fewest."""

    plan: Plan
    of: str
    metric: Metric
    alpha_share: float
    detector: Detector = field(init=False)
    answers: Counter[Side] = field(default_factory=Counter)
    bad: Counter[Side] = field(default_factory=Counter)
    worse: int = 0
    same: int = 0
    better: int = 0
    causes: dict[tuple[Side, bool], tuple[int, int]] = field(default_factory=dict)
    latest: defaultdict[Side, Cause] = field(default_factory=lambda: defaultdict(lambda: Cause(lost=0)))
    lost_beyond: float = 0.0
    losses: Losses = field(init=False)
    waiting: dict[bool, deque[tuple[Side, Cause | None]]] = field(
        default_factory=lambda: {first: deque(maxlen=WAITING) for first in (True, False)}
    )

    def __post_init__(self) -> None:
        plan = self.plan
        bets = pair_bets(plan.margin) if plan.control else share_bets(plan.tolerated + plan.margin)
        self.detector, self.losses = Detector(bets), Losses(plan.margin)

    def add(self, side: Side, *, first: bool, bad: bool, unix_ms: int, asked_unix_ms: int = 0) -> bool:
        """Count an answer, and return whether the evidence against the canary has grown. With a control an answer is
        judged once the other side has its partner: both are the first of their conversations, or neither is.

        Bad answers of one side at gaps below `_CRASH_GAP_MS`, within a second, may have one cause and count as one:
        until the cause is over no answer of that side is judged, good or bad, as this would change their shares. One
        that was asked for after the cause began is not its victim."""
        self.answers[side] += 1
        self.bad[side] += bad
        self.lost_beyond = max(0.0, self.lost_beyond - self.plan.margin * (side == "canary"))
        has_known_cause = self._has_known_cause(
            side, first=first, bad=bad, unix_ms=unix_ms, asked_unix_ms=asked_unix_ms
        )
        if has_known_cause:
            if bad:
                self.lose(side, self.latest[side])
            return False
        cause = self._new_cause(side) if bad else None
        if not self.plan.control:
            self.detector.add(canary_bad=bad)
            return bad
        waiting = self.waiting[first]
        if not waiting or side == waiting[0][0]:
            waiting.append((side, cause))
            return False
        _, other = waiting.popleft()
        canary, control = (cause, other) if side == "canary" else (other, cause)
        is_worse, is_better = control is None and canary is not None, canary is None and control is not None
        self.worse += is_worse
        self.better += is_better
        self.same += not (is_worse or is_better)
        self.detector.add(canary_bad=canary is not None, control_bad=control is not None)
        if self.metric == _OF_LOSSES:
            self.losses.add(canary, control)
        return is_worse

    def _new_cause(self, side: Side) -> Cause:
        self.latest[side] = Cause()
        self._count_lost(side)
        return self.latest[side]

    def lose(self, side: Side, cause: Cause) -> None:
        """Count a conversation for the hard stop that a cause has lost besides its first."""
        cause.lost += 1
        self._count_lost(side)
        if cause.pair and self.metric == _OF_LOSSES:
            self.losses.grow(cause, 1 if side == "canary" else -1)

    def _count_lost(self, side: Side) -> None:
        self.lost_beyond = max(0.0, self.lost_beyond + (1 if side == "canary" else -1))

    def _has_known_cause(self, side: Side, *, first: bool, bad: bool, unix_ms: int, asked_unix_ms: int) -> bool:
        """Return whether an answer belongs to the cause of its side's last bad answer and is not judged. How slow an
        answer is depends on the queue that it waited in: of those within `_ONE_QUEUE_MS` only the first is judged."""
        of_queue = self.metric == "slow"
        key = side, of_queue and first
        began, last = self.causes.get(key, (0, 0))
        if of_queue:
            is_same = abs(unix_ms - began) < _ONE_QUEUE_MS
        else:
            is_close = abs(unix_ms - began) < _ONE_CAUSE_MS and abs(unix_ms - last) < _CRASH_GAP_MS
            is_same = is_close and asked_unix_ms <= began
        if bad or of_queue:
            self.causes[key] = (began if is_same else unix_ms), unix_ms
        return is_same

    @property
    def is_spent(self) -> bool:
        """Return whether the canary has lost too many conversations for any class, and not by chance."""
        return self.lost_beyond >= _MOST_LOST and self.losses.log_e >= _CERTAIN

    def begin(self, of: str) -> None:
        """Begin with another class. The detector keeps its wealth, so that a stake counts once."""
        self.of = of
        self.answers.clear()
        self.bad.clear()
        self.lost_beyond = 0.0
        self.worse = self.same = self.better = 0
        for waiting in self.waiting.values():
            waiting.clear()

    @property
    def log_e(self) -> float:
        """Return the logarithm of this test's e-value."""
        return self.detector.log_e

    @property
    def log_weighted(self) -> float:
        """Return the logarithm of the e-value times the test's share of alpha."""
        return self.log_e + math.log(self.alpha_share)

    def share(self, side: Side) -> float | None:
        """Return the share of bad answers; None without answers."""
        return self.bad[side] / self.answers[side] if self.answers[side] else None

    def interval(self, alpha: float) -> tuple[float, float]:
        """Return bounds of the canary's share of bad answers minus the control's: a confidence sequence, so all bounds
        ever returned hold together with a probability of at least 1 - `alpha`."""
        limit = math.log(2 / alpha)
        low = _last(lambda margin: _pairs(self.worse, self.same, self.better, margin) >= limit)
        high = -_last(lambda margin: _pairs(self.better, self.same, self.worse, margin) >= limit)
        return low, high


@lru_cache(_CACHED)
def _pairs(worse: int, same: int, better: int, margin: float) -> float:
    """Return the logarithm of the wealth of bets on pairs, a mean over bets of several sizes. It is fair where the
    canary's chance of a bad answer is `margin` higher."""
    bets = [bet / (1 + margin) for bet in _BETS]
    logs = [
        worse * log1p(bet * (1 - margin)) + same * log1p(-bet * margin) + better * log1p(-bet * (1 + margin))
        for bet in bets
    ]
    most = max(logs)
    return most + math.log(sum(math.exp(log - most) for log in logs) / len(logs))


def _last(holds: Callable[[float], bool]) -> float:
    """Return the largest difference for which it holds; -1 where for none. It holds below wherever it holds."""
    low, high = -1.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
