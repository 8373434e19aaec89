"""Deadlines of the open requests, the earliest first. Pure."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from gateway.request.entry import Entry
from gateway.request.inflight import InflightTable


@dataclass(slots=True)
class DueTimes:
    """The times at which a request of the table may be late: first without text, then at all."""

    inflight: InflightTable
    _heap: list[tuple[int, str]] = field(default_factory=list)
    _held: set[tuple[int, str]] = field(default_factory=set)

    def add(self, entry: Entry) -> None:
        """Add the deadlines that hold now. A request is added again when its client returns: a deadline may have been
        passed over because of text that the client has no longer."""
        for unix_ms in (entry.deadline.first_token_unix_ms, entry.deadline.deadline_unix_ms):
            due = (unix_ms, entry.response_id)
            if due not in self._held:
                self._held.add(due)
                heapq.heappush(self._heap, due)

    def next_unix_ms(self) -> int | None:
        """Return the time at which to ask for `late` next; None where no request is open."""
        while self._heap and self.inflight.get(self._heap[0][1]) is None:
            self._pop()
        return self._heap[0][0] if self._heap else None

    def late(self, now_unix_ms: float) -> Iterator[Entry]:
        """Yield the requests that missed a deadline: without text the first token's, else the answer's. Each is to be
        ended before the next is asked for, by a fallback where nothing was shown, else by a cut: a fault with one
        leaves the others due."""
        late: set[str] = set()
        while (due := self.next_unix_ms()) is not None and due <= now_unix_ms:
            entry = self.inflight.get(self._pop())
            if entry is None or entry.response_id in late:
                continue
            if entry.deadline.expired(now_unix_ms, started=entry.started):
                late.add(entry.response_id)
                yield entry

    def _pop(self) -> str:
        due = heapq.heappop(self._heap)
        self._held.discard(due)
        return due[1]
