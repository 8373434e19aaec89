"""Decide what a worker does with a request while its lane may be closed: pure."""

from collections.abc import Callable
from enum import Enum, auto
from typing import Final, Generic, TypeVar

from shared.records.deliveries import Partition

R = TypeVar("R")
Origin = tuple[Partition, int]

_LEAST_DROPPED: Final = 256


class Step(Enum):
    """`SERVE`: it is answered, or ended, here. `WAIT`: an earlier request of its conversation has not left yet."""

    SERVE = auto()
    WAIT = auto()
    PASS_ON = auto()


def next_step(*, closed: bool, cancelled: bool, late: bool, behind: bool) -> Step:
    """Return what is done next with a request that has no text. In a closed lane only cancelled ones, and those too
    late for their first text, end here. `behind`: an earlier one of its conversation may still leave."""
    if not closed or cancelled or late:
        return Step.SERVE
    return Step.WAIT if behind else Step.PASS_ON


class HeldRecords(Generic[R]):
    """The records of requests that are begun, of each conversation in the order of their log."""

    def __init__(self) -> None:
        self._records: dict[Origin, R] = {}
        self._conversations: dict[tuple[Partition, bytes | None], dict[Origin, None]] = {}
        self._limit = _LEAST_DROPPED

    def __len__(self) -> int:
        return len(self._records)

    def add(self, origin: Origin, key: bytes | None, record: R, *, is_open: Callable[[Partition, int], bool]) -> None:
        """Hold a record. Now and then those that are not open any more are dropped."""
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
        """Return those of its conversation that stand before it in the log."""
        return [each for each in self._conversations.get((origin[0], key), ()) if each[1] < origin[1]]

    def _left(self, origins: dict[Origin, None]) -> dict[Origin, None]:
        return {each: None for each in origins if each in self._records}
