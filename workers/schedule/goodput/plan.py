"""Decide which of the waiting requests are kept: the rule of Moore and Hodgson (J. M. Moore, Management Science 15,
1968) applied to slots.

The waiting requests are planned in the order of their latest starts, on the slots as they become free. If one would
start too late, the planned requests with the highest cost for their value are given up until it would not. On one
machine one is enough, and the rule keeps the most jobs; here there are several slots and predicted costs, and a request
of a class below its floor may displace several.
"""

import math
from collections.abc import Iterable
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, Self

from shared.wire.messages import Bucket
from workers.schedule.goodput.books import Books, Prices
from workers.schedule.goodput.forecast import Forecast
from workers.schedule.goodput.queue import Item
from workers.schedule.policy import RunningLoad
from workers.schedule.sequence import Sequence

LONG: Final[Bucket] = "long"


@dataclass(frozen=True, slots=True)
class Reserve:
    """Slots reserved for the bucket `long`, which may use others too.

    Without a reserve many short requests fill every slot, and a long one, whose latest start is early, finds none.
    Other requests are planned and started on fewer slots: the reserved slots without a long request are not
    counted.
    """

    kept: int = 0

    @classmethod
    def from_share(cls, share: float, num_slots: int) -> Self:
        """Return a reserve of a share of the slots: at least one slot if `share` is above 0, and never all."""
        return cls(min(max(1, math.floor(share * num_slots)), num_slots - 1) if share > 0 else 0)

    def unheld(self, running: Iterable[Sequence]) -> int:
        """Return how many of the reserved slots no long request holds."""
        return max(0, self.kept - sum([row.bucket == LONG for row in running])) if self.kept else 0

    def set_aside(self, free_unix_ms: list[float], running: Iterable[Sequence]) -> list[float]:
        """Remove from the heap of free times the earliest ones, which are reserved for long requests, and return them,
        ascending.

        At least one remains.
        """
        num_aside = min(self.unheld(running), len(free_unix_ms) - 1)
        return [heappop(free_unix_ms) for _ in range(num_aside)]


_Heap = list[tuple[float, Item]]


class Candidates:
    """Requests that may be given up, ordered by price.

    Prices differ only by class and tenant, and change over time; within a class of a tenant the order is that of the
    costs.
    """

    def __init__(self, items: Iterable[Item]) -> None:
        self._heaps: dict[tuple[str, str], _Heap] = {}
        for item in items:
            self._heap_of(item).append((-item.dearness, item))
        for heap in self._heaps.values():
            heapify(heap)

    def add(self, item: Item) -> None:
        heappush(self._heap_of(item), (-item.dearness, item))

    def pop_dearer(self, item: Item, prices: Prices) -> Item | None:
        """Remove and return the most expensive request, if it is no cheaper than `item`; on a tie the first one."""
        most = prices.price(item.sequence.bucket, item.sequence.session.tenant, item.dearness)
        dearest: _Heap | None = None
        for (bucket, tenant), heap in self._heaps.items():
            if not heap:
                continue
            price = prices.price(bucket, tenant, -heap[0][0])
            if price > most or (price == most and (dearest is None or heap[0][1] < dearest[0][1])):
                dearest, most = heap, price
        return heappop(dearest)[1] if dearest is not None else None

    def _heap_of(self, item: Item) -> _Heap:
        return self._heaps.setdefault((item.sequence.bucket, item.sequence.session.tenant), [])


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """The result: `kept` in queue order; `given_up` requests have been removed from the accounts."""

    kept: list[Item]
    given_up: list[Item]


@dataclass(slots=True)
class _GivenUp:
    """The requests given up so far. Without them the other requests start `ahead_ms` sooner."""

    books: Books
    now_unix_ms: float
    step_ms: float
    num_slots: int
    margin: float
    spare: bool
    items: dict[Item, None] = field(default_factory=dict)
    ahead_ms: float = 0.0

    def make_room(self, item: Item, candidates: Candidates, free_unix_ms: float) -> float:
        """Give up candidates until `item` is not late, or give up `item` itself; return when it starts.

        `free_unix_ms` is when it would start if none were given up.
        """
        in_vain = self._late(item, self.now_unix_ms)
        while self._late(item, start := max(free_unix_ms - self.ahead_ms, self.now_unix_ms)):
            dearer = None if in_vain else candidates.pop_dearer(item, self.books.prices(self.now_unix_ms))
            victim = dearer or item
            self.books.dropped(victim)
            self.items[victim] = None
            if dearer is None:
                break
            taken_ms = victim.prefill_ms + victim.likely_output * self.step_ms
            self.ahead_ms += max(taken_ms / self.num_slots, victim.prefill_ms)
        return start

    def _late(self, item: Item, start_unix_ms: float) -> bool:
        return item.late(start_unix_ms, self.step_ms, self.margin, spare=self.spare)


def make_plan(
    queue: Items[Item],
    books: Books,
    forecast: Forecast,
    load: RunningLoad,
    now_unix_ms: float,
    *,
    margin: float,
    spare: bool,
    reserve: Reserve = Reserve(),
) -> QueuePlan:
    """Return the plan for a queue in ascending order.

    Args:
        queue: the waiting requests.
        books: the accounts of classes and tenants.
        forecast: the predicted durations.
        load: the running sequences.
        now_unix_ms: the current time.
        margin: the plan stays valid if everything takes this many times longer than predicted.
        spare: there are slots to spare; see `Item.late`.
        reserve: slots reserved for long requests.
    """
    step_ms = forecast.step_ms(min(len(load.running) + len(queue), load.num_slots))
    slow_ms = step_ms * margin
    free_unix_ms, prompts_unix_ms = forecast.releases(now_unix_ms, load, step_ms, num_starts=len(queue))
    # `apart`: requests planned on the reserved slots
    aside_unix_ms, apart = reserve.set_aside(free_unix_ms, load.running), set[Item]()
    given_up = _GivenUp(books, now_unix_ms, step_ms, load.num_slots, margin, spare)
    candidates: Candidates | None = None
    for item in queue:  # `Item.late` and `max` inlined: a thousand may wait
        slots = aside_unix_ms if aside_unix_ms and item.sequence.bucket == LONG else free_unix_ms
        free = slots[0] if slots[0] > prompts_unix_ms else prompts_unix_ms  # noqa: FURB136 - a call would cost more
        start = free - given_up.ahead_ms
        if start < now_unix_ms:  # noqa: PLR1730
            start = now_unix_ms
        first = start + item.prefill_ms * margin
        num_held, num_output = (0, item.least_output) if spare else (item.num_held, item.num_output)
        if (
            first + num_held * slow_ms > item.first_token_unix_ms
            or first + num_output * slow_ms > item.deadline_unix_ms
        ):
            candidates = candidates or Candidates(one for one in queue[: queue.index(item)] if one not in apart)
            start = given_up.make_room(item, candidates, free)
            if item in given_up.items:
                continue
        if slots is aside_unix_ms:
            apart.add(item)
        elif candidates is not None:
            candidates.add(item)
        prompts_unix_ms = start + given_up.ahead_ms + item.prefill_ms
        heapreplace(slots, prompts_unix_ms + item.likely_output * step_ms)
    return QueuePlan([item for item in queue if item not in given_up.items], list(given_up.items))
