"""Keep the answers of the last two minutes, for a request that comes again: pure.

A client that lost its socket asks another gateway for the same; the request has the same id there.
"""

import hashlib
from collections import OrderedDict
from typing import Final, NamedTuple

from shared.conversation.turn import Turn
from shared.wire.messages import ReplyDone
from shared.wire.outcome import Status
from shared.wire.requests import Order
from shared.wire.session_key import SessionKey

_CAPACITY: Final = 2_000
_KEPT_MS: Final = 120_000.0
# A turn says when it was asked; its answer may have taken as long again.
_TURN_KEPT_MS: Final = 2 * _KEPT_MS


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
        while len(self._answered) > self._capacity or self._oldest().unix_ms < now_unix_ms - _KEPT_MS:
            self._answered.popitem(last=False)

    def find(self, order: Order, now_unix_ms: float) -> ReplyDone | None:
        """Return the answer to the same question of the same conversation under the same id."""
        done = self.named(order.request.id, now_unix_ms)
        if done is None:
            return None
        found = self._answered[order.request.id]
        same = (found.session, found.input_digest) == (order.session, _digest(order))
        return done if same else None

    def named(self, request_id: str, now_unix_ms: float) -> ReplyDone | None:
        """Return the answer under that id."""
        found = self._answered.get(request_id)
        return None if found is None or found.unix_ms < now_unix_ms - _KEPT_MS else found.done

    def forget(self, session: SessionKey) -> None:
        """Forget a conversation that was erased."""
        for request_id in [name for name, found in self._answered.items() if found.session == session]:
            del self._answered[request_id]

    def _oldest(self) -> _Answered:
        return next(iter(self._answered.values()))


def answered_by(turn: Turn, order: Order, now_unix_ms: float) -> ReplyDone | None:
    """Return the terminal event of a turn of the history, where it is the answer to this very request."""
    if not is_of(turn, order) or turn.asked_unix_ms < now_unix_ms - _TURN_KEPT_MS:
        return None
    if not worth_telling(turn.status, turn.output_text):
        return None
    return turn.within(
        ReplyDone, request_id=turn.request_id, session_id=order.request.session_id, attempt=int(now_unix_ms)
    )


def is_of(turn: Turn, order: Order) -> bool:
    """Return whether a turn is of this very request, and not of another under the same id."""
    return (turn.request_id, turn.user) == (order.request.id, order.request.input)


def worth_telling(status: Status, text: str) -> bool:
    """Return whether an answer may be given again: one that failed, was cancelled or has no text is computed anew."""
    return status in ("completed", "incomplete") and bool(text)


def _digest(order: Order) -> bytes:
    return hashlib.blake2b(order.request.input.encode()).digest()
