"""Queue the messages for one client, in order and bounded even if the client is slow. Pure.

Unwritten deltas of one answer are merged into one, so the queue is bounded by the text of the open answers. A delta
gets its `seq` when it is written, so merging leaves no gap; `seq` starts at 0 with each `response.created`. The cursor
is also made at that moment and covers what has been written of each open answer.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from gateway.request.cursor import ResumePoint, Seal, checksum
from shared.wire.messages import ResponseCreated, ResponseDelta, ResponseDone, ServerMessage
from shared.wire.outcome import Response


@dataclass(frozen=True, slots=True)
class Opened:
    """An answer begins, or begins again.

    Attributes:
        resume_point: the answer's part of the cursor
        received_unix_ms: when the request was received, by this process's clock
    """

    created: ResponseCreated
    resume_point: ResumePoint
    received_unix_ms: float


@dataclass(frozen=True, slots=True)
class Shown:
    """Text to show to the client. `offset` is the number of characters before it."""

    response_id: str
    offset: int
    text: str


@dataclass(slots=True)
class _Growing:
    """A delta that is not written yet. Its parts are joined only when it is written, because a slow client's delta has
    many."""

    response_id: str
    offset: int
    parts: list[str]


_Item = ServerMessage | Opened | _Growing | Response


class Outbox:
    """The queue of one connection. Call `start_session` before the first answer."""

    __slots__ = ("_growing", "_items", "_points", "_received_unix_ms", "_seal", "merged", "size_chars")

    def __init__(self) -> None:
        self._items: list[_Item] = []
        self._growing: dict[str, _Growing] = {}
        self._points: dict[str, ResumePoint] = {}
        self._received_unix_ms: dict[str, float] = {}
        self._seal: Seal | None = None
        self.size_chars = 0
        self.merged = 0

    def __len__(self) -> int:
        """Return the number of queued messages."""
        return len(self._items)

    def start_session(self, seal: Seal, points: Iterable[ResumePoint], now_unix_ms: float) -> None:
        """Start the session of a client that resumes these answers. Their ages are as of now."""
        self._seal = seal
        self._points = {each.response_id: each for each in points}
        self._received_unix_ms = {name: now_unix_ms - each.age_ms for name, each in self._points.items()}

    def put(self, item: ServerMessage | Opened | Shown | Response) -> None:
        if isinstance(item, Shown):
            self.size_chars += len(item.text)
            waiting = self._growing.get(item.response_id)
            if waiting is not None:
                waiting.parts.append(item.text)
                self.merged += 1
                return
            growing = self._growing[item.response_id] = _Growing(item.response_id, item.offset, [item.text])
            self._items.append(growing)
            return
        if isinstance(item, Response):
            self._complete(item)
            self.size_chars += len(item.output_text)
            self._growing.pop(item.id, None)
        elif isinstance(item, Opened):  # the answer restarts
            self._growing.pop(item.created.response_id, None)
        self._items.append(item)

    def _complete(self, response: Response) -> None:
        """Queue the text that a fault kept from this outbox: the end must not carry more text than the deltas did."""
        point, waiting = self._points.get(response.id), self._growing.get(response.id)
        if point is None:
            return
        chars = point.chars if waiting is None else waiting.offset + sum(map(len, waiting.parts))
        text = response.output_text
        if chars < len(text) and checksum(text[: point.chars]) == point.crc:
            self.put(Shown(response.id, chars, text[chars:]))

    def drop_answer(self, response_id: str) -> None:
        """Drop an answer that was moved to another connection, from the queue and from the cursor."""
        self._forget(response_id)
        kept = [item for item in self._items if _answer_of(item) != response_id]
        self._items, self.size_chars = kept, sum(map(_size, kept))

    def drain(self, now_unix_ms: float) -> list[ServerMessage]:
        """Return all queued messages in order, each with its `seq` and cursor."""
        items, self._items = self._items, []
        self._growing.clear()
        self.size_chars = 0
        return [self._number(item, now_unix_ms) for item in items]

    def _number(self, item: _Item, now: float) -> ServerMessage:
        if isinstance(item, _Growing):
            point, text = self._points[item.response_id], "".join(item.parts)
            seq = point.seq
            point.add_text(text)
            return ResponseDelta(
                response_id=item.response_id, seq=seq, offset=item.offset, delta=text, cursor=self._cursor(now)
            )
        if isinstance(item, Opened):
            name = item.created.response_id
            self._points[name], self._received_unix_ms[name] = item.resume_point, item.received_unix_ms
            return msgspec.structs.replace(item.created, cursor=self._cursor(now))
        if isinstance(item, Response):
            self._forget(item.id)
            return ResponseDone(response=item, cursor=self._cursor(now))
        return item

    def _forget(self, response_id: str) -> None:
        self._points.pop(response_id, None)
        self._received_unix_ms.pop(response_id, None)

    def _cursor(self, now: float) -> str:
        assert self._seal is not None  # `start_session` precedes every answer
        for name, point in self._points.items():
            point.age_ms = max(0, int(now - self._received_unix_ms[name]))
        return self._seal.write(self._points.values())


def _answer_of(item: _Item) -> str | None:
    """Return the id of the answer that an item belongs to; None if it belongs to no answer."""
    match item:
        case _Growing():
            return item.response_id
        case Opened():
            return item.created.response_id
        case Response():
            return item.id
    return None


def _size(item: _Item) -> int:
    """Return the number of characters of text in an item."""
    if isinstance(item, _Growing):
        return sum(map(len, item.parts))
    return len(item.output_text) if isinstance(item, Response) else 0
