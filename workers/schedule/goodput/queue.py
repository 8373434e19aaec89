"""The waiting, in the order of their latest starts."""

from bisect import bisect_left, insort
from collections.abc import Sequence as Places
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from shared.wire.messages import Bucket
from workers.schedule.sequence import Sequence


@dataclass(slots=True, eq=False)
class Item:
    """`num_output` is what it is planned with, `likely_output` what it most likely writes, `least_output` what nearly
    every answer has, for those that take nobody's place; `num_held` tokens come before the one that its first text is
    shown with. `cost_ms` is its likely share of the machine in a full batch.
    Items stand in the order of their latest starts, equal ones in that of `order`."""

    sequence: Sequence
    prefill_ms: float
    num_held: int
    num_output: int
    likely_output: int
    least_output: int
    cost_ms: float
    first_token_unix_ms: int
    deadline_unix_ms: int
    latest_start_unix_ms: float
    order: int
    key: tuple[float, int] = field(init=False)

    def __post_init__(self) -> None:
        self.key = (self.latest_start_unix_ms, self.order)

    def __lt__(self, other: "Item") -> bool:
        return self.key < other.key

    @property
    def dearness(self) -> float:
        """Cost for value."""
        return self.cost_ms / self.sequence.weight

    def slack_ms(self, now_unix_ms: float, step_ms: float) -> float:
        """Return how much later than now it could start, if steps took so long."""
        shown_ms = self.prefill_ms + self.num_held * step_ms
        whole_ms = self.prefill_ms + self.num_output * step_ms
        return min(self.first_token_unix_ms - shown_ms, self.deadline_unix_ms - whole_ms) - now_unix_ms

    def late(self, start_unix_ms: float, step_ms: float, margin: float, *, spare: bool) -> bool:
        """Return whether an answer that starts then ends too late if all takes `margin` times the prediction. With
        slots to spare, only if even a short one would: a try costs nothing, and teaches lengths."""
        num_held, num_output = (0, self.least_output) if spare else (self.num_held, self.num_output)
        first, slow_ms = start_unix_ms + self.prefill_ms * margin, step_ms * margin
        return (
            first + num_held * slow_ms > self.first_token_unix_ms
            or first + num_output * slow_ms > self.deadline_unix_ms
        )


_BY_KEY: Final = attrgetter("key")
# While every latest start is so many times farther than the waiting prompts take, first come is first served: an order
# by deadline would only let the long wait for the short.
_CALM: Final = 8.0


class Queue:
    """`items` ascend by `Item.key`. Those that came since the last `take_new` are new."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self._by_id: dict[str, Item] = {}
        self._new: list[Item] = []

    def __len__(self) -> int:
        return len(self.items)

    def add(self, item: Item) -> None:
        insort(self.items, item, key=_BY_KEY)
        self._by_id[item.sequence.request_id] = item
        self._new.append(item)

    def remove(self, request_id: str) -> Item | None:
        """Remove an item; None where it does not wait."""
        item = self._by_id.pop(request_id, None)
        if item is not None:
            place = bisect_left(self.items, item.key, key=_BY_KEY)
            assert self.items[place] is item, "the queue is in order"
            del self.items[place]
        return item

    def pop(self, *, first_come: bool, only: Bucket | None = None) -> Item | None:
        """Remove and return the item with the earliest latest start, or the one that came first; of one bucket `only`,
        or of all. None where there is none."""
        places: Places[int] = range(len(self.items))
        if only is not None:
            places = [place for place in places if self.items[place].sequence.bucket == only]
        if not places:
            return None
        place = min(places, key=lambda place: self.items[place].order) if first_come else places[0]
        item = self.items.pop(place)
        del self._by_id[item.sequence.request_id]
        return item

    def is_calm(self, now_unix_ms: float, step_ms: float) -> bool:
        """Return whether no latest start is near, if steps take so long."""
        prompts_ms = sum([item.prefill_ms for item in self.items])
        return all(item.slack_ms(now_unix_ms, step_ms) > _CALM * prompts_ms for item in self.items)

    @property
    def has_new(self) -> bool:
        return bool(self._new)

    def take_new(self) -> list[Item]:
        """Return the new items that still wait; from now on they are not new."""
        new = [item for item in self._new if self._by_id.get(item.sequence.request_id) is item]
        self._new.clear()
        return new

    def replace(self, kept: list[Item], given_up: list[Item]) -> None:
        """Keep some of the items, in their order, and not the others."""
        self.items = kept
        for item in given_up:
            del self._by_id[item.sequence.request_id]
