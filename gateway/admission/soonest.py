"""Times that come nearer, and which of them is the least now: pure.

Each falls with the clock, a millisecond in each, until it reaches a floor of its own and stays there. So no order of
them holds for long; two orders do: that of the floors, and that of the moments at which they would reach zero. Reading
both from the front ends as soon as nothing further back can be less (R. Fagin, A. Lotem and M. Naor, "Optimal
aggregation algorithms for middleware", PODS 2001: the threshold algorithm).
"""

from bisect import bisect_left, insort
from collections.abc import Callable
from math import inf


class Soonest:
    """By name: `max(floor_ms, end_unix_ms - now)`. A change costs O(log n) comparisons."""

    def __init__(self) -> None:
        self._times: dict[str, tuple[float, float]] = {}
        self._by_floor: list[tuple[float, str]] = []
        self._by_end: list[tuple[float, str]] = []

    def put(self, name: str, floor_ms: float, end_unix_ms: float) -> None:
        """From now on the name's time is this one."""
        self.remove(name)
        self._times[name] = (floor_ms, end_unix_ms)
        insort(self._by_floor, (floor_ms, name))
        insort(self._by_end, (end_unix_ms, name))

    def remove(self, name: str) -> None:
        """Where it is not there, nothing happens."""
        times = self._times.pop(name, None)
        if times is not None:
            for order, value in zip((self._by_floor, self._by_end), times, strict=True):
                del order[bisect_left(order, (value, name))]

    def least(self, now_unix_ms: float, *, counts: Callable[[str], bool]) -> str | None:
        """Whose time is the least of those that count; None where none does."""
        best, best_ms = None, inf
        for (floor_ms, by_floor), (end_unix_ms, by_end) in zip(self._by_floor, self._by_end, strict=True):
            if best is not None and best_ms <= max(floor_ms, end_unix_ms - now_unix_ms):
                break
            for name in (by_floor, by_end):
                floor, end = self._times[name]
                time_ms = max(floor, end - now_unix_ms)
                if (best is None or time_ms < best_ms) and counts(name):
                    best, best_ms = name, time_ms
        return best
