"""How long the first of the waiting is held so that others can share its prefill call: pure, `now` a parameter.

Batching is continuous, so a window decides nothing else. It opens when somebody comes while nobody waits, and who still
waits after it has closed is taken as slots become free. How long it is, a rule says; what holds whatever the rule says:

- it closes by the clock, at the latest its bound after the oldest arrived: `busy_ms` while others run, else `quiet_ms`;
- it closes at once when no other prompt would fit into the call, or no other sequence into the free slots;
- it closes at once when somebody's slack is not comfortably longer than the rest of it;
- once looked at, it never becomes longer.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from workers.schedule.policy import Costs

# The slack is so many times the rest of the window at least: what is held must not be lost by it.
COMFORT: Final = 4.0
_GAP_STEP: Final = 0.1  # a memory of about ten gaps


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What waits at a look at the queue. `slack_ms` is the least of all: the latest start, less now.

    `busy`: others run, so the engine does not stand still meanwhile.
    """

    rows: int
    tokens: int
    slack_ms: float
    free_slots: int
    busy: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a rule goes by, at the first look: `gap_ms` is expected until somebody else comes, infinite if unknown."""

    opened_unix_ms: float
    bound_ms: float
    gap_ms: float
    rows: int
    slack_ms: float
    busy: bool


Rule = Callable[[Opening], float]
"""The share of the bound that the window is to have; what is not in 0 to 1 is brought there."""


def fixed(_opening: Opening) -> float:
    """Always the bound."""
    return 1.0


def adaptive(opening: Opening) -> float:
    """The bound while somebody else is to be expected within it, else nothing."""
    return 1.0 if opening.gap_ms <= opening.bound_ms else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowBounds:
    """`busy_ms` and `quiet_ms` are the longest windows. A prefill call has at most so many rows and tokens, and takes
    at most `stall_ms` while others decode (0: any time)."""

    busy_ms: float
    quiet_ms: float
    max_rows: int
    max_tokens: int
    stall_ms: float = 0.0


class Window:
    """Told of each arrival, asked before a slot is given."""

    __slots__ = ("_bounds", "_closes_unix_ms", "_costs", "_gaps", "_opened_unix_ms", "_rule", "is_open")

    def __init__(self, rule: Rule, bounds: WindowBounds, costs: Costs) -> None:
        self._rule = rule
        self._bounds = bounds
        self._costs = costs
        self._gaps = Gaps()
        self._opened_unix_ms = 0.0
        self._closes_unix_ms: float | None = None
        self.is_open = False

    def arrived(self, unix_ms: float, *, alone: bool) -> None:
        """Somebody came; `alone`: nobody waited."""
        self._gaps.add(unix_ms)
        if alone:
            self.is_open = True
            self._opened_unix_ms = unix_ms
            self._closes_unix_ms = None

    def holds(self, waiting: Waiting, now_unix_ms: float) -> bool:
        """Whether those who wait are held still. Once it is closed it stays so until somebody comes alone."""
        self.is_open = self.is_open and self._may_hold(waiting, now_unix_ms)
        return self.is_open

    @property
    def closes_unix_ms(self) -> float | None:
        """When it closes at the latest; None where it is closed, or nobody has looked at it yet."""
        return self._closes_unix_ms if self.is_open else None

    def _may_hold(self, waiting: Waiting, now_unix_ms: float) -> bool:
        bound_ms = self._bounds.busy_ms if waiting.busy else self._bounds.quiet_ms
        latest_unix_ms = self._opened_unix_ms + bound_ms
        # Before it was opened: the clock was put back, and says nothing about how long they have been held.
        if not self._opened_unix_ms <= now_unix_ms < latest_unix_ms or self._full(waiting):
            return False
        if self._closes_unix_ms is None:
            share = self._rule(self._opening(waiting, bound_ms, now_unix_ms))
            self._closes_unix_ms = self._opened_unix_ms + min(max(share, 0.0), 1.0) * bound_ms
        self._closes_unix_ms = min(self._closes_unix_ms, latest_unix_ms)
        rest_ms = self._closes_unix_ms - now_unix_ms
        return rest_ms > 0 and waiting.slack_ms >= COMFORT * rest_ms

    def _full(self, waiting: Waiting) -> bool:
        """Whether one more, as long as those that wait are on average, would have to wait for another call."""
        bounds = self._bounds
        if waiting.rows >= min(bounds.max_rows, waiting.free_slots):
            return True
        tokens = waiting.tokens + waiting.tokens // waiting.rows
        if tokens > bounds.max_tokens:
            return True
        return waiting.busy and 0 < bounds.stall_ms < self._costs.prefill_ms(tokens, rows=waiting.rows + 1)

    def _opening(self, waiting: Waiting, bound_ms: float, now_unix_ms: float) -> Opening:
        return Opening(
            opened_unix_ms=self._opened_unix_ms,
            bound_ms=bound_ms,
            gap_ms=self._gaps.expected_ms(now_unix_ms),
            rows=waiting.rows,
            slack_ms=waiting.slack_ms,
            busy=waiting.busy,
        )


@dataclass(slots=True)
class Gaps:
    """Between arrivals: a moving mean."""

    _mean_ms: float = math.inf
    _last_unix_ms: float | None = None

    def add(self, unix_ms: float) -> None:
        """An arrival. One before the last counts as at the same time."""
        if self._last_unix_ms is not None:
            gap_ms = max(0.0, unix_ms - self._last_unix_ms)
            self._mean_ms = (
                gap_ms if math.isinf(self._mean_ms) else self._mean_ms + _GAP_STEP * (gap_ms - self._mean_ms)
            )
            unix_ms = max(unix_ms, self._last_unix_ms)
        self._last_unix_ms = unix_ms

    def expected_ms(self, now_unix_ms: float) -> float:
        """Until the next, as far as one can tell: nobody for a while makes it as long a while. Infinite before two."""
        if self._last_unix_ms is None:
            return math.inf
        return max(self._mean_ms, now_unix_ms - self._last_unix_ms)
