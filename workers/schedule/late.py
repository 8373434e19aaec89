"""Find the sequences whose time is over: those that wait by a heap, those that run by a look at each. Pure."""

import heapq
from collections.abc import Mapping
from itertools import count

from workers.schedule.sequence import Phase, Sequence


class Late:
    """`running` are the sequences that run, by their request's id."""

    def __init__(self, running: Mapping[str, Sequence]) -> None:
        self._running = running
        self._due: list[tuple[int, int, Sequence]] = []
        self._order = count()

    def watch(self, sequence: Sequence) -> None:
        """Watch a sequence that waits."""
        heapq.heappush(self._due, (sequence.deadline.first_token_unix_ms, next(self._order), sequence))

    def found(self, now_unix_ms: float) -> list[Sequence]:
        """Return the sequences whose time is over; of those that wait each is returned once."""
        late: list[Sequence] = []
        for row in self._running.values():  # `Sequence.expired`, without the calls: 64 rows a step
            shown, deadline = row.shown_unix_ms is not None, row.deadline
            if now_unix_ms >= (deadline.deadline_unix_ms if shown else deadline.first_token_unix_ms):
                late.append(row)
        while self._due and self._due[0][0] <= now_unix_ms:
            _, _, sequence = heapq.heappop(self._due)
            if sequence.phase is Phase.WAITING:
                late.append(sequence)
        return late
