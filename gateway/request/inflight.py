"""The table of this gateway's requests: those that are open, and those that have ended within the last two minutes, in
case a client asks again. Pure."""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal

from gateway.request.answer import AnswerState
from gateway.request.entry import Entry
from shared.wire.deadline import RESUMABLE_MS
from shared.wire.messages import Reply
from shared.wire.session_key import SessionKey

_MAX_ENDED: Final = 2_000
_MAX_ENDED_CHARS: Final = 4_000_000  # of their questions, turns and answers


@dataclass(slots=True)
class InflightTable:
    """The requests of one gateway, owned by its event loop."""

    _open: dict[str, Entry] = field(default_factory=dict)
    _by_event: dict[tuple[SessionKey, str], Entry] = field(default_factory=dict)
    _ended: OrderedDict[str, Entry] = field(default_factory=OrderedDict)
    _ended_chars: int = 0
    _erased: OrderedDict[str, None] = field(default_factory=OrderedDict)

    def __len__(self) -> int:
        """Return the number of open requests."""
        return len(self._open)

    def get(self, response_id: str) -> Entry | None:
        """Return the open request with this id."""
        return self._open.get(response_id)

    def get_any(self, response_id: str) -> Entry | None:
        """Return the open or recently ended request with this id."""
        return self._open.get(response_id) or self._ended.get(response_id)

    def has_ended(self, response_id: str) -> bool:
        """Return whether the request with this id ended here recently."""
        return response_id in self._ended

    def find(self, session: SessionKey, event_id: str) -> Entry | None:
        """Return the open or recently ended request that was asked under this event id."""
        return self._by_event.get((session, event_id))

    def named(self, session: SessionKey, response_id: str | None, event_id: str | None) -> Entry | None:
        """Return the session's open or recently ended request with this response id, or else with this event id."""
        entry = self.get_any(response_id) if response_id else None
        if entry is None and event_id:
            entry = self.find(session, event_id)
        return entry if entry is not None and entry.request.session == session else None

    def open_of(self, session: SessionKey) -> list[Entry]:
        """Return the conversation's open requests."""
        return [entry for entry in self._open.values() if entry.request.session == session]

    def open_before(self, session: SessionKey, generation: int) -> list[Entry]:
        """Return the conversation's open requests of earlier generations, which an erasure has invalidated."""
        return [entry for entry in self._open.values() if _is_before(entry, session, generation)]

    def why_dropped(self, reply: Reply) -> Literal["session", "erased", "unknown"]:
        """Return why no client is shown a reply: its `session` differs from its request's, its request was `erased`, or
        its request is `unknown` here."""
        if reply.request_id in self._open:
            return "session"
        return "erased" if reply.request_id in self._erased else "unknown"

    def accept(self, entry: Entry) -> None:
        self._open[entry.response_id] = entry
        known = self._by_event.get(_event_key(entry))
        # otherwise this one was erased in the meantime
        if known is None or known.request.generation <= entry.request.generation:
            self._by_event[_event_key(entry)] = entry

    @contextmanager
    def refused_on_error(self, entry: Entry) -> Iterator[None]:
        """Refuse the request if the block raises. Its client is disconnected and asks again."""
        try:
            yield
        except Exception:
            self.refuse(entry)
            raise

    def refuse(self, entry: Entry) -> None:
        """Forget a request that is answered by an error."""
        entry.answer.advance(AnswerState.DONE)
        self._open.pop(entry.response_id, None)
        self._forget_event(entry)

    def detach(self, connection_id: str) -> None:
        """Detach a connection that was closed. Its requests continue: a dropped socket is not a cancel."""
        for entry in self._open.values():
            if entry.connection_id == connection_id:
                entry.connection_id = None

    def retire(self, entry: Entry) -> None:
        """Move an ended answer from the open ones to the recently ended ones, so that a repeated event finds it."""
        if self._open.get(entry.response_id) is not entry:
            return
        del self._open[entry.response_id]
        self._ended[entry.response_id] = entry
        entry.kept_chars = entry.num_chars
        self._ended_chars += entry.kept_chars
        oldest_ms = entry.answer.done_unix_ms - RESUMABLE_MS
        while self._ended:
            first = next(iter(self._ended.values()))
            is_full = len(self._ended) > _MAX_ENDED or self._ended_chars > _MAX_ENDED_CHARS
            if not is_full and first.answer.done_unix_ms >= oldest_ms:
                return
            self._drop_ended(first)

    def forget_before(self, session: SessionKey, generation: int) -> None:
        """Forget the ended answers of the conversation's earlier generations."""
        for entry in [each for each in self._ended.values() if _is_before(each, session, generation)]:
            self.forget(entry)

    def forget(self, entry: Entry) -> None:
        """Forget an ended answer that was erased."""
        if self._ended.get(entry.response_id) is entry:
            self._drop_ended(entry)
        self._erased[entry.response_id] = None
        if len(self._erased) > _MAX_ENDED:
            self._erased.popitem(last=False)

    def _drop_ended(self, entry: Entry) -> None:
        del self._ended[entry.response_id]
        self._ended_chars -= entry.kept_chars
        self._forget_event(entry)

    def _forget_event(self, entry: Entry) -> None:
        if self._by_event.get(_event_key(entry)) is entry:
            del self._by_event[_event_key(entry)]


def _event_key(entry: Entry) -> tuple[SessionKey, str]:
    return (entry.request.session, entry.request.event_id)


def _is_before(entry: Entry, session: SessionKey, generation: int) -> bool:
    return entry.request.session == session and entry.request.generation < generation
