"""Look up requests: open ones by their next deadline, and for a while those that have ended. Pure."""

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal

from gateway.request.answer import State
from gateway.request.entry import Entry
from shared.wire.messages import Reply
from shared.wire.session_key import SessionKey

_MAX_ENDED: Final = 2_000
_ENDED_MS: Final = 120_000.0


@dataclass(slots=True)
class InflightTable:
    """The requests of one gateway; owned by its event loop."""

    _open: dict[str, Entry] = field(default_factory=dict)
    _by_event: dict[tuple[SessionKey, str], Entry] = field(default_factory=dict)
    _ended: OrderedDict[str, Entry] = field(default_factory=OrderedDict)
    _erased: OrderedDict[str, None] = field(default_factory=OrderedDict)

    def __len__(self) -> int:
        """Return the number of requests without their end."""
        return len(self._open)

    def get(self, response_id: str) -> Entry | None:
        """Return the open request of that id."""
        return self._open.get(response_id)

    def get_any(self, response_id: str) -> Entry | None:
        """Return the request of that id: open, or ended a short while ago."""
        return self._open.get(response_id) or self._ended.get(response_id)

    def has_ended(self, response_id: str) -> bool:
        """Return whether the request of that id ended here a short while ago."""
        return response_id in self._ended

    def find(self, session: SessionKey, event_id: str) -> Entry | None:
        """Return the request that this event asked for: open, or ended a short while ago."""
        return self._by_event.get((session, event_id))

    def named(self, session: SessionKey, response_id: str | None, event_id: str | None) -> Entry | None:
        """Return the session's request of that id, else that of the event: open, or ended a short while ago."""
        entry = self.get_any(response_id) if response_id else None
        if entry is None and event_id:
            entry = self.find(session, event_id)
        return entry if entry is not None and entry.request.session == session else None

    def open_before(self, session: SessionKey, generation: int) -> list[Entry]:
        """Return the conversation's open requests of earlier generations: an erasure has reached them."""
        return [entry for entry in self._open.values() if _is_before(entry, session, generation)]

    def why_dropped(self, reply: Reply) -> Literal["session", "erased", "unknown"]:
        """Return why a reply is shown to no client: it is of another `session` than the request of its id, of a
        generation that was `erased`, or of an `unknown` request."""
        if reply.request_id in self._open:
            return "session"
        return "erased" if reply.request_id in self._erased else "unknown"

    def accept(self, entry: Entry) -> None:
        self._open[entry.response_id] = entry
        known = self._by_event.get(_event_key(entry))
        if known is None or known.request.generation <= entry.request.generation:  # else this one was erased meanwhile
            self._by_event[_event_key(entry)] = entry

    @contextmanager
    def refused_on_error(self, entry: Entry) -> Iterator[None]:
        """Refuse a request that a fault keeps from being accepted: its client is sent away, and asks anew."""
        try:
            yield
        except Exception:
            self.refuse(entry)
            raise

    def refuse(self, entry: Entry) -> None:
        """Forget a request that gets an error instead of an answer."""
        entry.answer.advance(State.DONE)
        self._open.pop(entry.response_id, None)
        self._forget_event(entry)

    def detach(self, connection_id: str) -> None:
        """Detach a connection that is gone; its requests go on (a dropped socket is not a cancel)."""
        for entry in self._open.values():
            if entry.connection_id == connection_id:
                entry.connection_id = None

    def retire(self, entry: Entry) -> None:
        """Keep an answer that has ended for a while, no longer among the open ones: a repeated event finds it."""
        if self._open.get(entry.response_id) is not entry:
            return
        del self._open[entry.response_id]
        self._ended[entry.response_id] = entry
        oldest_ms = entry.answer.done_unix_ms - _ENDED_MS
        while self._ended:
            first = next(iter(self._ended.values()))
            if len(self._ended) <= _MAX_ENDED and first.answer.done_unix_ms >= oldest_ms:
                return
            self._ended.popitem(last=False)
            self._forget_event(first)

    def forget_before(self, session: SessionKey, generation: int) -> None:
        """Forget the ended answers of a conversation's earlier generations."""
        for entry in [each for each in self._ended.values() if _is_before(each, session, generation)]:
            self.forget(entry)

    def forget(self, entry: Entry) -> None:
        """Forget an answer that has ended, and was erased."""
        if self._ended.get(entry.response_id) is entry:
            del self._ended[entry.response_id]
            self._forget_event(entry)
        self._erased[entry.response_id] = None
        if len(self._erased) > _MAX_ENDED:
            self._erased.popitem(last=False)

    def _forget_event(self, entry: Entry) -> None:
        if self._by_event.get(_event_key(entry)) is entry:
            del self._by_event[_event_key(entry)]


def _event_key(entry: Entry) -> tuple[SessionKey, str]:
    return (entry.request.session, entry.request.event_id)


def _is_before(entry: Entry, session: SessionKey, generation: int) -> bool:
    return entry.request.session == session and entry.request.generation < generation


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
