"""What waits to be written to one client: pure, in order, and no bigger for a slow client.

Deltas of one answer that are not yet written are merged into one, so what waits is bounded by the text of the answers
in flight. `seq` is given when a delta leaves, so it has no gap however deltas were merged; it starts at 0 with each
`response.created`.
"""

from dataclasses import dataclass

from shared.messages import ResponseCreated, ResponseDelta, ResponseDone, ServerMessage


@dataclass(frozen=True, slots=True)
class Shown:
    """Text of an answer for its client; `offset` is the number of characters before it."""

    response_id: str
    offset: int
    text: str


@dataclass(slots=True)
class _Growing:
    """A delta that is not written yet."""

    response_id: str
    offset: int
    text: str


class Outbox:
    __slots__ = ("_growing", "_items", "_next_seq", "merged", "size_chars")

    def __init__(self) -> None:
        self._items: list[ServerMessage | _Growing] = []
        self._growing: dict[str, _Growing] = {}
        self._next_seq: dict[str, int] = {}
        self.size_chars = 0
        self.merged = 0

    def __len__(self) -> int:
        """Messages that wait."""
        return len(self._items)

    def put(self, item: ServerMessage | Shown) -> None:
        if isinstance(item, Shown):
            self.size_chars += len(item.text)
            waiting = self._growing.get(item.response_id)
            if waiting is not None:
                waiting.text += item.text
                self.merged += 1
                return
            growing = self._growing[item.response_id] = _Growing(item.response_id, item.offset, item.text)
            self._items.append(growing)
            return
        if isinstance(item, ResponseDone):
            self.size_chars += len(item.response.output_text)
            self._growing.pop(item.response.id, None)
        elif isinstance(item, ResponseCreated):  # from here on the answer is told from its beginning
            self._growing.pop(item.response_id, None)
        self._items.append(item)

    def take(self) -> list[ServerMessage]:
        """Everything that waits, in order, with its `seq`."""
        items, self._items = self._items, []
        self._growing.clear()
        self.size_chars = 0
        return [self._number(item) for item in items]

    def _number(self, item: ServerMessage | _Growing) -> ServerMessage:
        if isinstance(item, _Growing):
            seq = self._next_seq.get(item.response_id, 0)
            self._next_seq[item.response_id] = seq + 1
            return ResponseDelta(
                response_id=item.response_id,
                seq=seq,
                offset=item.offset,
                delta=item.text,
                cursor=cursor(item.response_id, item.offset + len(item.text)),
            )
        if isinstance(item, ResponseCreated):
            self._next_seq[item.response_id] = 0
        elif isinstance(item, ResponseDone):
            self._next_seq.pop(item.response.id, None)
        return item


def cursor(response_id: str, offset: int) -> str:
    """Opaque to clients: which answer, and how much of it they have."""
    return f"{response_id}@{offset}"
