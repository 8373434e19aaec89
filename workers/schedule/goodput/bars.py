"""Decide how much a request may cost while not all requests can be served.

A plan knows the waiting requests, not future ones, so recent requests are used as their estimate: if only a share of
the offered work can be served, it should be the cheapest share, and the highest cost in it is the bar. A class below
its floor is compared with its own requests only, since next to other classes' they may all be too expensive.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from workers.schedule.goodput.queue import Item

_MEMORY: Final = 100  # requests; there is no bar before this many have come
_HEADROOM: Final = 1.05  # leaves a plan some choice

_Lately = deque[tuple[float, float]]
"""Cost for value, and cost, of the newest requests."""


class Bars:
    """The bars; each offered item updates them."""

    def __init__(self) -> None:
        self._all: _Lately = deque(maxlen=_MEMORY)
        self._classes: dict[str, _Lately] = {}

    def offered(self, item: Item) -> None:
        of_class = self._classes.setdefault(item.sequence.bucket, deque(maxlen=_MEMORY))
        for lately in (self._all, of_class):
            lately.append((item.dearness, item.cost_ms))

    def over(self, items: Iterable[Item], served_share: float, floors: set[str]) -> list[Item]:
        """Return the items above the bar.

        Args:
            items: the items to compare.
            served_share: the share of the offered work that is served.
            floors: the classes that are below their floor.
        """
        share = _HEADROOM * served_share
        most = _bar(self._all, share)
        bars = {bucket: max(most, _bar(self._classes[bucket], share)) for bucket in floors & self._classes.keys()}
        return [item for item in items if item.dearness > bars.get(item.sequence.bucket, most)]


def _bar(lately: _Lately, share: float) -> float:
    """Return the cost for value up to which the cheapest requests make up a share of the work."""
    if share >= 1 or len(lately) < _MEMORY:
        return float("inf")
    left_ms = share * sum([cost_ms for _, cost_ms in lately])
    for dearness, cost_ms in sorted(lately):
        left_ms -= cost_ms
        if left_ms <= 0:
            return dearness
    return float("inf")
