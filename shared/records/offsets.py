"""Track which offsets may be committed: up to the first record whose terminal event is not acknowledged."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from shared.records.deliveries import Deliveries, Partition


@dataclass(slots=True)
class _Window:
    """A partition from the first offset opened: the offsets not done, in order, each with whether it is claimed; and
    the next after the last one opened. A done offset leaves no trace: a backlog behind one slow answer costs
    nothing."""

    start: int
    end: int
    open: dict[int, bool] = field(default_factory=dict)

    @property
    def position(self) -> int:
        return next(iter(self.open), self.end)


class OffsetTracker:
    """At-least-once bookkeeping. Offsets are opened in the order of the log, claimed and done in any order."""

    def __init__(self) -> None:
        self.deliveries = Deliveries()
        self._windows: dict[Partition, _Window] = {}
        self._committed: dict[Partition, int] = {}
        self._again: dict[Partition, int] = {}

    def open(self, partition: Partition, offset: int) -> bool:
        """Open an offset; return whether the record is to be worked on: not where it was done, or is claimed here. One
        that is read again, after a rebalance, keeps its place."""
        window = self._window(partition, offset)
        if offset >= window.end:
            window.open[offset] = False
            window.end = offset + 1
        return window.open.get(offset) is False

    def claim(self, partition: Partition, offset: int) -> None:
        """Note that the record is being worked on here, until `done`."""
        window = self._windows.get(partition)
        if window is not None and offset in window.open:
            window.open[offset] = True

    def skip(self, partition: Partition, offset: int) -> None:
        """Open an offset and be done with it: nobody waits for an answer. A record that is claimed stays open."""
        window = self._window(partition, offset)
        window.end = max(window.end, offset + 1)
        if window.open.get(offset) is False:
            del window.open[offset]

    def pass_over(self, passed: Mapping[Partition, int]) -> None:
        """Note, by partition, the next offset of a log that went on without a record."""
        for partition, offset in passed.items():
            window = self._windows.setdefault(partition, _Window(start=offset - 1, end=offset))
            window.end = max(window.end, offset)

    def done(self, partition: Partition, offset: int) -> None:
        """Note that the record's terminal event is acknowledged. Unknown where the partition was lost meanwhile."""
        window = self._windows.get(partition)
        if window is not None:
            window.open.pop(offset, None)
            self.deliveries.done(partition, offset)

    def is_open(self, partition: Partition, offset: int) -> bool:
        """Return whether the record was opened here and is not done."""
        window = self._windows.get(partition)
        return window is not None and offset in window.open

    def tenure(self, partition: Partition) -> object | None:
        """Return a number that stays the same for as long as the partition is here without a break; None where it is
        not."""
        return self._windows.get(partition)

    @property
    def positions(self) -> dict[Partition, int]:
        """Partition → next offset to read, of all that were opened."""
        return {partition: window.position for partition, window in self._windows.items()}

    def committable(self) -> dict[Partition, int]:
        """Partition → next offset to read, of those that moved since they were last committed."""
        return {
            partition: position
            for partition, position in self.positions.items()
            if position != self._committed.get(partition, self._windows[partition].start)
        }

    def committed(self, offsets: dict[Partition, int]) -> None:
        self._committed.update(offsets)

    def moving(self) -> None:
        """Note that a rebalance begins: what it gives back is read again from what is committed now, or later."""
        for partition, window in self._windows.items():
            self._again.setdefault(partition, self._committed.get(partition, window.start))

    def lose(self, partitions: Collection[Partition]) -> None:
        """Partitions went to another member: what is open there is theirs to answer."""
        for partition in partitions:
            self._windows.pop(partition, None)
            self._committed.pop(partition, None)
            self._again.pop(partition, None)
        self.deliveries.lose(partitions)

    @property
    def num_open(self) -> int:
        """Return the number of records opened and not done."""
        return sum([len(window.open) for window in self._windows.values()])

    def _window(self, partition: Partition, offset: int) -> _Window:
        """Return the partition's window. A log that is read from before what was committed of it is another one: its
        topic was deleted and created anew, and the window begins anew with it."""
        window = self._windows.get(partition)
        if window is not None:
            committed = self._committed.get(partition, window.start)
            if offset < self._again.get(partition, committed):
                self.lose([partition])
                window = None
            elif offset >= committed:
                self._again.pop(partition, None)
        if window is None:
            window = self._windows[partition] = _Window(start=offset, end=offset)
        return window
