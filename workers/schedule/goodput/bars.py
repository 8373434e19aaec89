"""Decide how dear a request may be while not all can be served: the dearer ones are not kept waiting for what others
need.

A plan knows those who wait, not those who will come. What came lately tells: where only a share of the work offered can
be served it had better be the cheapest of it, and the cost up to which the cheapest make up that share is the bar. A
class that has less than its floor is measured against its own requests, for beside others' they are all too dear.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from workers.schedule.goodput.queue import Item

_MEMORY: Final = 100  # requests; before so many have come there is no bar
_HEADROOM: Final = 1.05  # a plan is to have a choice still

_Lately = deque[tuple[float, float]]
"""Cost for value and cost of the newest requests."""


class Bars:
    """Learns from each item that comes."""

    def __init__(self) -> None:
        self._all: _Lately = deque(maxlen=_MEMORY)
        self._classes: dict[str, _Lately] = {}

    def offered(self, item: Item) -> None:
        of_class = self._classes.setdefault(item.sequence.bucket, deque(maxlen=_MEMORY))
        for lately in (self._all, of_class):
            lately.append((item.dearness, item.cost_ms))

    def over(self, items: Iterable[Item], served_share: float, floors: set[str]) -> list[Item]:
        """Return the `items` that are above the bar, where a share of the work is served; `floors`: the classes
        that have less than theirs."""
        share = _HEADROOM * served_share
        most = _bar(self._all, share)
        bars = {bucket: max(most, _bar(self._classes[bucket], share)) for bucket in floors & self._classes.keys()}
        return [item for item in items if item.dearness > bars.get(item.sequence.bucket, most)]


def _bar(lately: _Lately, share: float) -> float:
    """Return the cost for value up to which the cheapest make up a share of the work."""
    if share >= 1 or len(lately) < _MEMORY:
        return float("inf")
    left_ms = share * sum([cost_ms for _, cost_ms in lately])
    for dearness, cost_ms in sorted(lately):
        left_ms -= cost_ms
        if left_ms <= 0:
            return dearness
    return float("inf")
