"""Candidates that a plan may give up: the dearest for its value is found without looking at all of them."""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from workers.schedule.goodput.books import Prices
from workers.schedule.goodput.item import Item

_Heap = list[tuple[float, Item]]


class Candidates:
    """Prices differ by class and tenant alone, and change: within a class of a tenant the order is the costs'."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._heaps: dict[tuple[str, str], _Heap] = {}
        for item in items:
            self._heap_of(item).append((-item.dearness, item))
        for heap in self._heaps.values():
            heapify(heap)

    def add(self, item: Item) -> None:
        heappush(self._heap_of(item), (-item.dearness, item))

    def pop_dearer(self, item: Item, prices: Prices) -> Item | None:
        """Take out the dearest, if it is no cheaper than `item`, which follows them all; of equal ones the first in
        order."""
        most = prices.of(item.sequence.bucket, item.sequence.session.tenant, item.dearness)
        dearest: _Heap | None = None
        for (bucket, tenant), heap in self._heaps.items():
            if not heap:
                continue
            price = prices.of(bucket, tenant, -heap[0][0])
            if price > most or (price == most and (dearest is None or heap[0][1] < dearest[0][1])):
                dearest, most = heap, price
        return heappop(dearest)[1] if dearest is not None else None

    def _heap_of(self, item: Item) -> _Heap:
        return self._heaps.setdefault((item.sequence.bucket, item.sequence.session.tenant), [])
