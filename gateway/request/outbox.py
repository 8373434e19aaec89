"""Queue what is to be written to one client: pure, in order, and bounded for a slow client.

Deltas of one answer that are not yet written are merged into one, so the queue is bounded by the text of the answers in
flight. `seq` is given when a delta leaves, so it has no gap however deltas were merged; it starts at 0 with each
`response.created`. The cursor is written then too: it has what has left of every open answer.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from gateway.request.cursor import ResumePoint, Seal, checksum
from shared.wire.messages import ResponseCreated, ResponseDelta, ResponseDone, ServerMessage
from shared.wire.outcome import Response


@dataclass(frozen=True, slots=True)
class Opened:
    """An answer begins, or begins again. `resume_point` is its part of the cursor, `received_unix_ms` its request's
    time of receipt by the process's clock."""

    created: ResponseCreated
    resume_point: ResumePoint
    received_unix_ms: float


@dataclass(frozen=True, slots=True)
class Shown:
    """Text of an answer for its client; `offset` is the number of characters before it."""

    response_id: str
    offset: int
    text: str


@dataclass(slots=True)
class _Growing:
    """A delta that is not written yet. Its parts are joined when it leaves: a slow client's has many."""

    response_id: str
    offset: int
    parts: list[str]


_Item = ServerMessage | Opened | _Growing | Response


class Outbox:
    """The queue of one connection. `start_session` is called before the first answer."""

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
        """Messages that wait."""
        return len(self._items)

    def start_session(self, seal: Seal, points: Iterable[ResumePoint], now_unix_ms: float) -> None:
        """Start a session whose name is known; its client returns with these answers open, each of its age by now."""
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
        elif isinstance(item, Opened):  # the answer starts again
            self._growing.pop(item.created.response_id, None)
        self._items.append(item)

    def _complete(self, response: Response) -> None:
        """Put the text of an answer that a fault has kept from here: its end has that of its deltas, and no more."""
        point, waiting = self._points.get(response.id), self._growing.get(response.id)
        if point is None:
            return
        chars = point.chars if waiting is None else waiting.offset + sum(map(len, waiting.parts))
        text = response.output_text
        if chars < len(text) and checksum(text[: point.chars]) == point.crc:
            self.put(Shown(response.id, chars, text[chars:]))

    def drop_answer(self, response_id: str) -> None:
        """Drop an answer that another client's outbox has from now on: nothing more of it is written here, nor in the
        cursor."""
        self._forget(response_id)
        kept = [item for item in self._items if _answer_of(item) != response_id]
        self._items, self.size_chars = kept, sum(map(_size, kept))

    def drain(self, now_unix_ms: float) -> list[ServerMessage]:
        """Return everything that waits, in order, with its `seq` and its cursor."""
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
        assert self._seal is not None  # no answer comes before the session has begun
        for name, point in self._points.items():
            point.age_ms = max(0, int(now - self._received_unix_ms[name]))
        return self._seal.write(self._points.values())


def _answer_of(item: _Item) -> str | None:
    """Return the id of the answer that an item belongs to; None where it belongs to none."""
    match item:
        case _Growing():
            return item.response_id
        case Opened():
            return item.created.response_id
        case Response():
            return item.id
    return None


def _size(item: _Item) -> int:
    """Return the characters of text in an item."""
    if isinstance(item, _Growing):
        return sum(map(len, item.parts))
    return len(item.output_text) if isinstance(item, Response) else 0
