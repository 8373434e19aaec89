"""The cancels of the last two minutes: pure. A cancel may come before its request, or be read before it by the worker
that has just got its partition."""

from collections import deque
from typing import Final

from shared.wire.messages import Cancel, ChatRequest

REMEMBERED_MS: Final = 120_000.0
# 8,300 a second. As they are kept here, some 80 MB.
_CAPACITY: Final = 1_000_000
_SLICE_MS: Final = 10_000.0


class RecentCancels:
    """A cancel is kept for two minutes, and a twelfth longer at most. Where more than `capacity` come in that time the
    oldest are forgotten, ten seconds of them at once.

    A cancel names its request by id, by reply partition (None: any) and by creation (None: any), so that the same
    request asked again is not cancelled. Only the hash of these is kept: the chance of a collision is below one in
    10^13. Times are by this process's clock alone: compared with the creation by the gateway's, a skew would lose a
    cancel. A request that is read later than its cancel is kept is computed in vain; by then the longest deadline of
    the defaults is past.
    """

    def __init__(self, capacity: int = _CAPACITY) -> None:
        self._capacity = capacity
        self._slices: deque[tuple[float, set[int]]] = deque()  # each with the moment of its first
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, cancel: Cancel, now_unix_ms: float) -> int:
        """Add a cancel; return how many had to be forgotten before their time."""
        self._expire(now_unix_ms)
        forgotten = self._drop_oldest() if self._size >= self._capacity else 0
        if not self._slices or abs(now_unix_ms - self._slices[-1][0]) >= _SLICE_MS:
            self._slices.append((now_unix_ms, set()))
        names = self._slices[-1][1]
        before = len(names)
        names.add(_name(cancel.request_id, cancel.reply_partition, cancel.created_unix_ms))
        self._size += len(names) - before
        return forgotten

    def knows(self, request: ChatRequest) -> bool:
        """Return whether the request was cancelled lately."""
        return bool(self._size) and any(names & _cancelling(request) for _, names in self._slices)

    def pop(self, request: ChatRequest, now_unix_ms: float) -> bool:
        """Return whether the request was cancelled lately, and forget the cancel."""
        self._expire(now_unix_ms)
        if not self._size:
            return False
        cancelling, before = _cancelling(request), self._size
        for _, names in self._slices:
            for name in cancelling & names:
                names.remove(name)
                self._size -= 1
        return self._size < before

    def _expire(self, now_unix_ms: float) -> None:
        while self._slices and abs(now_unix_ms - self._slices[0][0]) >= REMEMBERED_MS + _SLICE_MS:
            self._drop_oldest()

    def _drop_oldest(self) -> int:
        _, names = self._slices.popleft()
        self._size -= len(names)
        return len(names)


def _cancelling(request: ChatRequest) -> set[int]:
    """Return the names of the cancels that a request may have."""
    return {
        _name(request.id, partition, created)
        for partition in (None, request.reply_partition)
        for created in (None, request.created_unix_ms)
    }


def _name(request_id: str, reply_partition: int | None, created_unix_ms: int | None) -> int:
    return hash((request_id, reply_partition, created_unix_ms))
