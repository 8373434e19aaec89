"""Decide which of the waiting are kept: Moore's and Hodgson's rule (J. M. Moore, Management Science 15, 1968) over
slots.

In the order of their latest starts the waiting are planned over the slots as they will become free. Where one would
start too late, whichever of those up to it cost the most for their value are given up until it would not. On one
machine one is enough, and that keeps the most jobs; here it is over slots, with predicted costs, and what a class's
floor keeps may take the place of several.
"""

from collections.abc import Sequence as Items
from dataclasses import dataclass
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
    aside_unix_ms = reserve.set_aside(free_unix_ms, load.running)
    ahead_ms = 0.0  # what has been given up so far brings the rest forward
    apart: set[Item] = set()  # in slots that are kept for them, and in nobody's way
    given_up: dict[Item, None] = {}
    candidates: Candidates | None = None
    for item in queue:  # `Item.late` and `max` without the calls: a thousand may wait
        slots = aside_unix_ms if aside_unix_ms and item.sequence.bucket == LONG else free_unix_ms
        start = slots[0]
        if prompts_unix_ms > start:  # noqa: PLR1730 - a call would cost more than the comparison
            start = prompts_unix_ms
        start -= ahead_ms
        if start < now_unix_ms:  # noqa: PLR1730
            start = now_unix_ms
        first = start + item.prefill_ms * margin
        num_held, num_output = (0, item.least_output) if spare else (item.num_held, item.num_output)
        shown, ends = first + num_held * slow_ms, first + num_output * slow_ms
        if shown > item.first_token_unix_ms or ends > item.deadline_unix_ms:
            candidates = candidates or Candidates(one for one in queue[: queue.index(item)] if one not in apart)
            in_vain = item.late(now_unix_ms, step_ms, margin, spare=spare)
            while item not in given_up and item.late(start, step_ms, margin, spare=spare):
                dearer = None if in_vain else candidates.pop_dearer(item, books.prices(now_unix_ms))
                victim = dearer or item
                books.dropped(victim)
                given_up[victim] = None
                taken_ms = victim.prefill_ms + victim.likely_output * step_ms
                ahead_ms += max(taken_ms / load.num_slots, victim.prefill_ms) if dearer else 0.0
                start = max(max(slots[0], prompts_unix_ms) - ahead_ms, now_unix_ms)
            if item in given_up:
                continue
        if slots is aside_unix_ms:
            apart.add(item)
        elif candidates is not None:
            candidates.add(item)
        prompts_unix_ms = start + ahead_ms + item.prefill_ms
        heapreplace(slots, prompts_unix_ms + item.likely_output * step_ms)
    return Plan([item for item in queue if item not in given_up], list(given_up))
