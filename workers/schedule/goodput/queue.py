"""The waiting, in the order of their latest starts."""

from bisect import bisect_left, insort
from collections.abc import Sequence as Places
from operator import attrgetter
from typing import Final

from shared.wire.messages import Bucket
from workers.schedule.goodput.item import Item

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
