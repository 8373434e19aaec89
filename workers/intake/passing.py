"""Decide whether a worker answers a request of its lane, forwards it to the champion's lane, or waits. A lane may be
closed while requests are still in its topics. Pure."""

from collections.abc import Callable
from enum import Enum, auto
from typing import Final, Generic, TypeVar

from shared.records.deliveries import Partition

R = TypeVar("R")
Origin = tuple[Partition, int]

_LEAST_DROPPED: Final = 256


class PassingStep(Enum):
    """What to do with a request.

    `SERVE`: answer or end it here. `WAIT`: an earlier request of its conversation has not been forwarded yet.
    `PASS_ON`: forward it to the champion's topics.
    """

    SERVE = auto()
    WAIT = auto()
    PASS_ON = auto()


def next_step(*, closed: bool, cancelled: bool, late: bool, behind: bool) -> PassingStep:
    """Return the next step for a request that has no text yet.

    Args:
        closed: the lane is closed; then only cancelled requests and those too late for their first text end here.
        cancelled: the request was cancelled.
        late: its first-token deadline has passed.
        behind: an earlier request of its conversation may still be forwarded.
    """
    if not closed or cancelled or late:
        return PassingStep.SERVE
    return PassingStep.WAIT if behind else PassingStep.PASS_ON


class HeldRecords(Generic[R]):
    """The records of requests that have begun, in log order for each conversation."""

    def __init__(self) -> None:
        self._records: dict[Origin, R] = {}
        self._conversations: dict[tuple[Partition, bytes | None], dict[Origin, None]] = {}
        self._limit = _LEAST_DROPPED

    def __len__(self) -> int:
        return len(self._records)

    def add(self, origin: Origin, key: bytes | None, record: R, *, is_open: Callable[[Partition, int], bool]) -> None:
        """Keep a record. From time to time, records that are no longer open are dropped."""
        if len(self._records) >= self._limit:
            self._records = {each: held for each, held in self._records.items() if is_open(*each)}
            self._limit = 2 * len(self._records) + _LEAST_DROPPED
            left = {name: self._left(origins) for name, origins in self._conversations.items()}
            self._conversations = {name: origins for name, origins in left.items() if origins}
        self._records[origin] = record
        self._conversations.setdefault((origin[0], key), {})[origin] = None

    def get(self, origin: Origin) -> R | None:
        return self._records.get(origin)

    def before(self, origin: Origin, key: bytes | None) -> list[Origin]:
        """Return the conversation's records with an earlier offset."""
        return [each for each in self._conversations.get((origin[0], key), ()) if each[1] < origin[1]]

    def _left(self, origins: dict[Origin, None]) -> dict[Origin, None]:
        return {each: None for each in origins if each in self._records}
