"""The waiting requests, sorted by their latest starts."""

from bisect import bisect_left, insort
from collections.abc import Sequence as Places
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from shared.wire.messages import Bucket
from workers.schedule.sequence import Sequence


@dataclass(slots=True, eq=False)
class Item:
    """A waiting request; items are sorted by latest start, then by `order`.

    Attributes:
        num_held: tokens before the one with which its first text is shown.
        num_output: the length for planning.
        likely_output: the most likely length.
        least_output: a length that nearly every answer reaches, for requests that displace no other.
        cost_ms: its likely share of the machine time in a full batch.
    """

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
        """Return by how much later than now it could start, given the duration of a step."""
        shown_ms = self.prefill_ms + self.num_held * step_ms
        whole_ms = self.prefill_ms + self.num_output * step_ms
        return min(self.first_token_unix_ms - shown_ms, self.deadline_unix_ms - whole_ms) - now_unix_ms

    def late(self, start_unix_ms: float, step_ms: float, margin: float, *, spare: bool) -> bool:
        """Return whether an answer that starts then ends too late if everything takes `margin` times the prediction.

        With slots to spare, only if even a short answer would: a try costs nothing, and teaches lengths.
        """
        num_held, num_output = (0, self.least_output) if spare else (self.num_held, self.num_output)
        first, slow_ms = start_unix_ms + self.prefill_ms * margin, step_ms * margin
        return (
            first + num_held * slow_ms > self.first_token_unix_ms
            or first + num_output * slow_ms > self.deadline_unix_ms
        )


_BY_KEY: Final = attrgetter("key")
# If every latest start is this many times farther away than the waiting prompts take, requests are served in the order
# of arrival: sorting by deadline would only make long ones wait for short ones.
_CALM: Final = 8.0


class Queue:
    """The queue. `items` are sorted by `Item.key`; those added since the last `take_new` are new."""

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
        """Remove and return an item; None if it does not wait."""
        item = self._by_id.pop(request_id, None)
        if item is not None:
            place = bisect_left(self.items, item.key, key=_BY_KEY)
            assert self.items[place] is item, "the queue is in order"
            del self.items[place]
        return item

    def pop(self, *, first_come: bool, only: Bucket | None = None) -> Item | None:
        """Remove and return the item with the earliest latest start, or the first one that came.

        Args:
            first_come: choose by the order of arrival.
            only: choose only from this bucket.

        Returns:
            None if there is no such item.
        """
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
        """Return whether no latest start is near, given the duration of a step."""
        prompts_ms = sum([item.prefill_ms for item in self.items])
        return all(item.slack_ms(now_unix_ms, step_ms) > _CALM * prompts_ms for item in self.items)

    @property
    def has_new(self) -> bool:
        return bool(self._new)

    def take_new(self) -> list[Item]:
        """Return the new items that still wait, and mark them as not new."""
        new = [item for item in self._new if self._by_id.get(item.sequence.request_id) is item]
        self._new.clear()
        return new

    def replace(self, kept: list[Item], given_up: list[Item]) -> None:
        """Replace the items by those kept."""
        self.items = kept
        for item in given_up:
            del self._by_id[item.sequence.request_id]
