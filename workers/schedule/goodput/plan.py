"""Decide which of the waiting are kept: Moore's and Hodgson's rule (J. M. Moore, Management Science 15, 1968) over
slots.

In the order of their latest starts the waiting are planned over the slots as they will become free. Where one would
start too late, whichever of those up to it cost the most for their value are given up until it would not. On one
machine one is enough, and that keeps the most jobs; here it is over slots, with predicted costs, and what a class's
floor keeps may take the place of several.
"""

from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from heapq import heapreplace

from workers.schedule.goodput.books import Books
from workers.schedule.goodput.candidates import Candidates
from workers.schedule.goodput.forecast import Forecast
from workers.schedule.goodput.item import Item
from workers.schedule.goodput.reserve import LONG, Reserve
from workers.schedule.policy import Load


@dataclass(frozen=True, slots=True)
class Plan:
    """`kept` stays in the order of the queue; `given_up` is no longer in the books."""

    kept: list[Item]
    given_up: list[Item]


@dataclass(slots=True)
class _GivenUp:
    """The requests that are given up so far; that brings the rest forward by `ahead_ms`."""

    books: Books
    now_unix_ms: float
    step_ms: float
    num_slots: int
    margin: float
    spare: bool
    items: dict[Item, None] = field(default_factory=dict)
    ahead_ms: float = 0.0

    def make_room(self, item: Item, candidates: Candidates, free_unix_ms: float) -> float:
        """Give up candidates until `item` is not late, or give up itself; return when it starts. `free_unix_ms`: when
        it would have started with none given up."""
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
    load: Load,
    now_unix_ms: float,
    *,
    margin: float,
    spare: bool,
    reserve: Reserve = Reserve(),  # noqa: B008 - immutable
) -> Plan:
    """`queue` ascends. `margin`: how many times longer all may take than predicted. `spare`: see `Item.late`."""
    step_ms = forecast.step_ms(min(len(load.running) + len(queue), load.num_slots))
    slow_ms = step_ms * margin
    free_unix_ms, prompts_unix_ms = forecast.releases(now_unix_ms, load, step_ms, num_starts=len(queue))
    aside_unix_ms, apart = reserve.set_aside(free_unix_ms, load.running), set[Item]()  # in slots kept for them
    given_up = _GivenUp(books, now_unix_ms, step_ms, load.num_slots, margin, spare)
    candidates: Candidates | None = None
    for item in queue:  # `Item.late` and `max` without the calls: a thousand may wait
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
    return Plan([item for item in queue if item not in given_up.items], list(given_up.items))
