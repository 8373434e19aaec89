"""Track which offsets may be committed: all before the first record whose terminal event is not acknowledged."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from shared.records.deliveries import Deliveries, Partition


@dataclass(slots=True)
class _Window:
    """A partition from the first offset opened.

    Attributes:
        start: the first offset opened.
        end: the offset after the last one opened.
        open: offsets not done, in order, each with whether it is claimed. A done offset uses no memory, so a long
            backlog behind one slow answer costs nothing.
    """

    start: int
    end: int
    open: dict[int, bool] = field(default_factory=dict)

    @property
    def position(self) -> int:
        return next(iter(self.open), self.end)


class OffsetTracker:
    """Bookkeeping for at-least-once delivery. Offsets are opened in log order, then claimed and done in any order."""

    def __init__(self) -> None:
        self.deliveries = Deliveries()
        self._windows: dict[Partition, _Window] = {}
        self._committed: dict[Partition, int] = {}
        self._again: dict[Partition, int] = {}

    def open(self, partition: Partition, offset: int) -> bool:
        """Open an offset, and return whether its record must be processed.

        Returns:
            False if the record is done or already claimed here. A record that is read again after a rebalance keeps its
            state.
        """
        window = self._window(partition, offset)
        if offset >= window.end:
            window.open[offset] = False
            window.end = offset + 1
        return window.open.get(offset) is False

    def claim(self, partition: Partition, offset: int) -> None:
        """Mark a record as being processed here, until `done`."""
        window = self._windows.get(partition)
        if window is not None and offset in window.open:
            window.open[offset] = True

    def skip(self, partition: Partition, offset: int) -> None:
        """Open an offset and mark it as done, because its record needs no answer. A claimed record remains open."""
        window = self._window(partition, offset)
        window.end = max(window.end, offset + 1)
        if window.open.get(offset) is False:
            del window.open[offset]

    def pass_over(self, passed: Mapping[Partition, int]) -> None:
        """Advance partitions whose log continued without a record, given the next offset of each."""
        for partition, offset in passed.items():
            window = self._windows.setdefault(partition, _Window(start=offset - 1, end=offset))
            window.end = max(window.end, offset)

    def done(self, partition: Partition, offset: int) -> None:
        """Mark a record as done: its terminal event is acknowledged. Has no effect if the partition was lost."""
        window = self._windows.get(partition)
        if window is not None:
            window.open.pop(offset, None)
            self.deliveries.done(partition, offset)

    def is_open(self, partition: Partition, offset: int) -> bool:
        """Return whether the record was opened here and is not done."""
        window = self._windows.get(partition)
        return window is not None and offset in window.open

    def tenure(self, partition: Partition) -> object | None:
        """Return an object that is the same while this reader owns the partition without a break; None if it does
        not."""
        return self._windows.get(partition)

    @property
    def positions(self) -> dict[Partition, int]:
        """Next offset to read by partition, for all partitions with opened offsets."""
        return {partition: window.position for partition, window in self._windows.items()}

    def committable(self) -> dict[Partition, int]:
        """Return the next offset to read of each partition that advanced since its last commit."""
        return {
            partition: position
            for partition, position in self.positions.items()
            if position != self._committed.get(partition, self._windows[partition].start)
        }

    def committed(self, offsets: dict[Partition, int]) -> None:
        self._committed.update(offsets)

    def begin_rebalance(self) -> None:
        """Remember the committed offsets at the start of a rebalance; partitions assigned back are read again from
        there."""
        for partition, window in self._windows.items():
            self._again.setdefault(partition, self._committed.get(partition, window.start))

    def lose(self, partitions: Collection[Partition]) -> None:
        """Forget partitions that another member owns now; it answers their open records."""
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
        """Return the partition's window.

        A read below the committed offset means that the topic was deleted and created again, so the window starts again
        too.
        """
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
