"""Which offsets may be committed: up to the highest contiguous record whose terminal event is acknowledged."""

from collections.abc import Iterable
from dataclasses import dataclass, field

Partition = tuple[str, int]


@dataclass(slots=True)
class _Window:
    """Offsets taken and not yet committable, in order; `True` once done."""

    open: dict[int, bool] = field(default_factory=dict)
    position: int | None = None


class OffsetTracker:
    """At-least-once bookkeeping. An offset is begun in the order of the log and done in any order."""

    def __init__(self) -> None:
        self._windows: dict[Partition, _Window] = {}
        self._committed: dict[Partition, int] = {}

    def begin(self, partition: Partition, offset: int) -> None:
        window = self._windows.setdefault(partition, _Window())
        if offset in window.open or (window.position is not None and offset < window.position):
            return  # read again after a rebalance: it keeps its place
        window.open[offset] = False

    def done(self, partition: Partition, offset: int) -> None:
        """The record's terminal event is acknowledged. Unknown where the partition was lost meanwhile."""
        window = self._windows.get(partition)
        if window is None or offset not in window.open:
            return
        window.open[offset] = True
        while window.open and window.open[first := next(iter(window.open))]:
            del window.open[first]
            window.position = first + 1

    def committable(self) -> dict[Partition, int]:
        """Partition → next offset to read, of those that moved since they were last said to be committed."""
        return {
            partition: window.position
            for partition, window in self._windows.items()
            if window.position is not None and self._committed.get(partition) != window.position
        }

    def committed(self, offsets: dict[Partition, int]) -> None:
        self._committed.update(offsets)

    def lose(self, partitions: Iterable[Partition]) -> None:
        """Partitions went to another member: what is open there is theirs to answer."""
        for partition in partitions:
            self._windows.pop(partition, None)
            self._committed.pop(partition, None)

    @property
    def num_open(self) -> int:
        return sum(len(window.open) for window in self._windows.values())
