"""Keep the answers and cancels of the last two minutes, for repeated requests. Pure.

A client that lost its socket asks another gateway for the same answer; the request there has the same id.
"""

import hashlib
from collections import OrderedDict, deque
from typing import Final, NamedTuple

from shared.conversation.turn import Turn
from shared.wire.deadline import RESUMABLE_MS
from shared.wire.messages import Cancel, ChatRequest, ReplyDone
from shared.wire.outcome import Status
from shared.wire.requests import Order
from shared.wire.session_key import SessionKey

_CAPACITY: Final = 2_000
# A turn records when it was asked; its answer may have taken as long again.
_TURN_KEPT_MS: Final = 2 * RESUMABLE_MS


class _Answered(NamedTuple):
    session: SessionKey
    input_digest: bytes
    done: ReplyDone
    unix_ms: float


class RecentAnswers:
    """The last `capacity` answers of the last two minutes."""

    def __init__(self, capacity: int = _CAPACITY) -> None:
        self._capacity = capacity
        self._answered: OrderedDict[str, _Answered] = OrderedDict()

    def __len__(self) -> int:
        return len(self._answered)

    def add(self, order: Order, done: ReplyDone, now_unix_ms: float) -> None:
        if not worth_telling(done.status, done.output_text):
            return
        self._answered.pop(done.request_id, None)
        answered = _Answered(order.session, _digest(order), done, now_unix_ms)
        self._answered[done.request_id] = answered
        while len(self._answered) > self._capacity or self._oldest().unix_ms < now_unix_ms - RESUMABLE_MS:
            self._answered.popitem(last=False)

    def find(self, order: Order, now_unix_ms: float) -> ReplyDone | None:
        """Return the answer to the same question of the same conversation with the same id."""
        done = self.named(order.request.id, now_unix_ms)
        if done is None:
            return None
        found = self._answered[order.request.id]
        same = (found.session, found.input_digest) == (order.session, _digest(order))
        return done if same else None

    def named(self, request_id: str, now_unix_ms: float) -> ReplyDone | None:
        """Return the answer with that id."""
        found = self._answered.get(request_id)
        return None if found is None or found.unix_ms < now_unix_ms - RESUMABLE_MS else found.done

    def forget(self, session: SessionKey) -> None:
        """Forget an erased conversation."""
        for request_id in [name for name, found in self._answered.items() if found.session == session]:
            del self._answered[request_id]

    def _oldest(self) -> _Answered:
        return next(iter(self._answered.values()))


def answered_by(turn: Turn, order: Order, now_unix_ms: float) -> ReplyDone | None:
    """Return the terminal event of a turn in the history if it is the answer to this request."""
    if not is_of(turn, order) or turn.asked_unix_ms < now_unix_ms - _TURN_KEPT_MS:
        return None
    if not worth_telling(turn.status, turn.output_text):
        return None
    return turn.within(
        ReplyDone, request_id=turn.request_id, session_id=order.request.session_id, attempt=int(now_unix_ms)
    )


def is_of(turn: Turn, order: Order) -> bool:
    """Return whether a turn belongs to this request, not to another one with the same id."""
    return (turn.request_id, turn.user) == (order.request.id, order.request.input)


def worth_telling(status: Status, text: str) -> bool:
    """Return whether an answer may be sent again; one that failed, was cancelled or is empty is computed again."""
    return status in ("completed", "incomplete") and bool(text)


def _digest(order: Order) -> bytes:
    return hashlib.blake2b(order.request.input.encode()).digest()


# 8,300 a second; they take about 80 MB.
_MOST_CANCELS: Final = 1_000_000
_SLICE_MS: Final = 10_000.0


class RecentCancels:
    """Stores cancels that arrive before their request, for two minutes and at most ten seconds longer.

    A cancel is read before its request also after a rebalance. Above `capacity` the oldest ten seconds are dropped.

    A cancel names its request by id, reply partition (None: any) and creation (None: any), so that a later request with
    the same id is not cancelled. Only a hash of these is stored; the probability of a collision is below 10^-13. Times
    are this process's, since a skew against the gateway's clock could lose a cancel.
    """

    def __init__(self, capacity: int = _MOST_CANCELS) -> None:
        self._capacity = capacity
        self._slices: deque[tuple[float, set[int]]] = deque()  # each with the time of its first cancel
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, cancel: Cancel, now_unix_ms: float) -> int:
        """Add a cancel; return how many had to be dropped early."""
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
        """Return whether the request was cancelled recently."""
        return bool(self._size) and any(names & _cancelling(request) for _, names in self._slices)

    def pop(self, request: ChatRequest, now_unix_ms: float) -> bool:
        """Return whether the request was cancelled recently, and drop the cancel."""
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
        while self._slices and abs(now_unix_ms - self._slices[0][0]) >= RESUMABLE_MS + _SLICE_MS:
            self._drop_oldest()

    def _drop_oldest(self) -> int:
        _, names = self._slices.popleft()
        self._size -= len(names)
        return len(names)


def _cancelling(request: ChatRequest) -> set[int]:
    """Return the hashes of cancels that would apply to a request."""
    return {
        _name(request.id, partition, created)
        for partition in (None, request.reply_partition)
        for created in (None, request.created_unix_ms)
    }


def _name(request_id: str, reply_partition: int | None, created_unix_ms: int | None) -> int:
    return hash((request_id, reply_partition, created_unix_ms))
