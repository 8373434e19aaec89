"""Every request without its terminal event: pure. What is shown, once and in order; what is due; who waits for it.

    COUNTING → PUBLISHING → WAITING → STREAMING → DONE

Replies may come late, twice, with gaps, from two workers, or before Kafka's acknowledgement of the request reached us.
Text is placed by its `offset`: an overlap is dropped, a gap is filled by the terminal event, which carries the whole
text. The first terminal event wins, whoever gives it: the worker, the client's cancel, the fallback or the deadline.
"""

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal

import msgspec

from gateway.request.cursor import Told
from gateway.request.entry import Entry, Item, State, adopted
from shared.faq.fallback import Fallback
from shared.wire.messages import Reply, ReplyDelta, ReplyDone
from shared.wire.outcome import ErrorDetail, Outcome, Response, Source
from shared.wire.session_key import SessionKey

_REMEMBERED_DONE = 2_000
_REMEMBERED_MS = 120_000.0


class InflightTable:
    """Owned by the gateway's event loop."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._by_event: dict[tuple[SessionKey, str], Entry] = {}
        self._done: OrderedDict[str, Entry] = OrderedDict()
        self._erased: OrderedDict[str, None] = OrderedDict()
        self._due: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, response_id: str) -> Entry | None:
        return self._entries.get(response_id)

    def get_any(self, response_id: str) -> Entry | None:
        """Unanswered, or answered a short while ago."""
        return self._entries.get(response_id) or self._done.get(response_id)

    def find(self, session: SessionKey, event_id: str) -> Entry | None:
        """Return the request that this event asked for: unanswered, or answered a short while ago."""
        return self._by_event.get((session, event_id))

    def named(self, session: SessionKey, response_id: str | None, event_id: str | None) -> Entry | None:
        """Return the session's request of that id, else that of the event: unanswered, or answered a short while
        ago."""
        entry = self.get_any(response_id) if response_id else None
        if entry is None and event_id:
            entry = self.find(session, event_id)
        return entry if entry is not None and entry.session == session else None

    def erased(self, session: SessionKey, generation: int) -> list[Entry]:
        """Return the open answers that an erasure has reached: the conversation is in this generation now."""
        return [entry for entry in self._entries.values() if entry.session == session and entry.generation < generation]

    def why_dropped(self, reply: Reply) -> Literal["session", "erased", "unknown"]:
        """Why nobody is shown a reply: it is of another `session` than the request of its id, of a generation that was
        `erased`, or nothing is known of it."""
        if reply.request_id in self._entries:
            return "session"
        return "erased" if reply.request_id in self._erased else "unknown"

    # --- a request comes

    def accept(self, entry: Entry) -> None:
        self._entries[entry.response_id] = entry
        named = self._by_event.get(_event_key(entry))
        if named is None or named.generation <= entry.generation:  # else this one comes back to hear that it was erased
            self._by_event[_event_key(entry)] = entry
        self._watch(entry)

    def _watch(self, entry: Entry) -> None:
        heapq.heappush(self._due, (entry.deadline.first_token_unix_ms, entry.response_id))
        heapq.heappush(self._due, (entry.deadline.deadline_unix_ms, entry.response_id))

    @contextmanager
    def beginning(self, entry: Entry) -> Iterator[None]:
        """Forget an answer that a fault keeps from being begun: its client is sent away, and asks anew."""
        try:
            yield
        except Exception:
            self.refuse(entry)
            raise

    def refuse(self, entry: Entry) -> None:
        """Refuse a request that was never accepted after all: the client gets an error instead of an answer."""
        entry.advance(State.DONE)
        self._entries.pop(entry.response_id, None)
        self._unname(entry)

    def reattach(self, entry: Entry, connection_id: str) -> list[Item]:
        """Answer a client that asks again, on this or another connection: all so far, never a second computation."""
        entry.connection_id = connection_id
        if entry.seen:
            self._watch(entry)  # it may have no text any more, and its soft deadline have been passed over
        entry.seen = 0
        if not entry.created:
            return []
        return [*entry.told_whole(), *([entry.response] if entry.response is not None else [])]

    def resume(self, entry: Entry, connection_id: str, told: Told) -> list[Item]:
        """Return the rest for a client that comes back and has been told so much, as far as it is known here."""
        entry.connection_id = connection_id
        if not entry.created:
            return []  # it was asked again here meanwhile, and will be told from its beginning
        entry.seen, entry.seen_crc = told.chars, told.crc
        if not entry.started:
            self._watch(entry)  # by an older cursor than the last: its soft deadline may have been passed over
        if entry.response is None:
            return entry.unseen()
        return [*(entry.unseen() or entry.told_anew()), entry.response]

    def adopt(self, told: Told, session: SessionKey, connection_id: str, now_unix_ms: float) -> Entry:
        """Adopt an answer that another gateway began and that its client comes back with, of its age by now."""
        entry = adopted(told, session, connection_id, int(now_unix_ms))
        self.accept(entry)
        return entry

    def recalled(self, entry: Entry) -> None:
        """Note that the log's part of an adopted answer has been read: from now on its own deadlines count."""
        adoption = entry.adoption
        if adoption is None or adoption.promised is None or entry.done:
            return
        entry.deadline, adoption.promised = adoption.promised, None
        self._watch(entry)

    def detach(self, connection_id: str) -> None:
        """Detach a connection that is gone; its requests go on (a dropped socket is not a cancel)."""
        for entry in self._entries.values():
            if entry.connection_id == connection_id:
                entry.connection_id = None

    # --- replies come

    def delta(self, reply: ReplyDelta, now_unix_ms: float) -> list[Item]:
        """Return the text that is new, to be shown now; nothing for what is late, repeated, or behind a gap."""
        entry = self._entries.get(reply.request_id)
        if entry is None or reply.attempt < entry.attempt or entry.diverged:
            return []
        entry.attempt, entry.heard_unix_ms = reply.attempt, now_unix_ms
        overlap = entry.chars - reply.offset
        text = reply.delta
        if overlap < 0:
            return []  # a delta was lost: the terminal event fills the gap
        if overlap > 0:
            shown = entry.text[reply.offset :]
            if shown[: len(text)] != text[: len(shown)]:
                entry.diverged = True
                return []
            text = text[overlap:]
        return entry.show(text, now_unix_ms) if text else []

    def finish(self, entry: Entry, reply: ReplyDone, now_unix_ms: float) -> list[Item]:
        """End an answer by the terminal event of a worker, or of another gateway that holds this answer too. Where a
        worker's text does not continue what was shown, the answer has failed: two texts are never spliced. A cut that
        came a little sooner contradicts nothing, and a gateway's word stands: it is told anew. A worker that took over
        a partition and did not begin ends nothing while text of another flows: the deadline stands behind that."""
        items: list[Item] = []
        if reply.origin == "worker" and not reply.output_text and entry.flows(reply.attempt, now_unix_ms):
            return items
        if not entry.created:  # not acknowledged yet, or asked again here and still being counted
            entry.drop_unseen()
            items.append(entry.opened())
            entry.advance(State.WAITING)
            entry.published = True
        cut = reply.reason in _CUT and entry.text.startswith(reply.output_text)
        if not cut and not reply.output_text.startswith(entry.text):
            if reply.origin != "gateway":
                spliced = msgspec.structs.replace(reply, status="failed", reason="internal", source="model")
                return self._end(entry, now_unix_ms, spliced)
            if not entry.seen:
                items.append(entry.opened())
            entry.drop_unseen()
        new = reply.output_text[entry.chars :]
        rest = entry.show(new, now_unix_ms) if new else []
        entry.stood_in = reply.origin == "gateway" and reply.source in _IN_THE_MODELS_STEAD
        return [*items, *rest, *self._end(entry, now_unix_ms, reply)]

    # --- the gateway itself ends it

    def fall_back(self, entry: Entry, fallback: Fallback, now_unix_ms: float) -> list[Item]:
        """End an answer by the FAQ's, only where nothing of the model's text was shown."""
        if entry.chars and entry.created:
            raise AssertionError(f"{entry.response_id} has text already")
        items: list[Item] = [] if entry.created else [entry.opened()]
        entry.drop_unseen()
        entry.advance(State.STREAMING)
        entry.stood_in = fallback.source in _IN_THE_MODELS_STEAD
        shown = entry.show(fallback.text, now_unix_ms)
        outcome = Outcome.uncounted("completed", "stop", fallback.source, grounding=fallback.grounding)
        return [*items, *shown, *self._end(entry, now_unix_ms, outcome)]

    def cut(self, entry: Entry, now_unix_ms: float) -> list[Item]:
        """Cut an answer at its deadline: what is written stands."""
        return self._end(entry, now_unix_ms, Outcome.uncounted("incomplete", "deadline"))

    def cancel(self, entry: Entry, now_unix_ms: float) -> list[Item]:
        """Cancel an answer that its client does not want any more."""
        items = entry.opened_at_last()
        return [*items, *self._end(entry, now_unix_ms, Outcome.uncounted("cancelled", "client"))]

    def fail(self, entry: Entry, error: ErrorDetail, now_unix_ms: float) -> list[Item]:
        """End an answer by a fault of our own: what is written stands."""
        items = entry.opened_at_last()
        return [*items, *self._end(entry, now_unix_ms, Outcome.uncounted("failed", "internal", error=error))]

    def _end(self, entry: Entry, now_unix_ms: float, outcome: Outcome) -> list[Item]:
        """End an answer with the text that is here, whatever the outcome has."""
        timings = entry.timings(outcome.timings, now_unix_ms)
        response = outcome.within(Response, id=entry.response_id, output_text=entry.text, timings=timings)
        entry.advance(State.DONE)
        entry.response, entry.done_unix_ms = response, now_unix_ms
        del self._entries[entry.response_id]
        self._remember(entry)
        return [*entry.told_anew(), response]

    def _remember(self, entry: Entry) -> None:
        """Remember the answer for a while: a repeated event finds it."""
        self._done[entry.response_id] = entry
        oldest_ms = entry.done_unix_ms - _REMEMBERED_MS
        while self._done:
            first = next(iter(self._done.values()))
            if len(self._done) <= _REMEMBERED_DONE and first.done_unix_ms >= oldest_ms:
                return
            self._done.popitem(last=False)
            self._unname(first)

    def forget_session(self, session: SessionKey, generation: int) -> None:
        """Drop what is remembered of a conversation's earlier generations."""
        for entry in [e for e in self._done.values() if e.session == session and e.generation < generation]:
            self.forget(entry)

    def forget(self, entry: Entry) -> None:
        """Drop one that has ended, and was erased."""
        if self._done.get(entry.response_id) is entry:
            del self._done[entry.response_id]
            self._unname(entry)
        self._erased[entry.response_id] = None
        if len(self._erased) > _REMEMBERED_DONE:
            self._erased.popitem(last=False)

    def _unname(self, entry: Entry) -> None:
        if self._by_event.get(_event_key(entry)) is entry:
            del self._by_event[_event_key(entry)]

    # --- time passes

    def next_due_unix_ms(self) -> int | None:
        """When `late` has to be asked next."""
        while self._due and self._due[0][1] not in self._entries:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def late(self, now_unix_ms: float) -> list[Entry]:
        """Return the requests that missed a deadline: without text the first token's, else the answer's. Each is to be
        ended now, by `fall_back` where nothing was shown, else by `cut`."""
        late: dict[str, Entry] = {}
        while (due := self.next_due_unix_ms()) is not None and due <= now_unix_ms:
            _, response_id = heapq.heappop(self._due)
            entry = self._entries[response_id]
            if entry.deadline.expired(now_unix_ms, started=entry.started):
                late[response_id] = entry
        return list(late.values())


# Ends that are a matter of the moment: by the deadline, by the client's will, or since a second worker would not begin
# again what the first had begun and was killed over.
_CUT = ("deadline", "client", "infeasible")
_IN_THE_MODELS_STEAD: Final[tuple[Source, ...]] = ("faq", "busy")


def _event_key(entry: Entry) -> tuple[SessionKey, str]:
    return (entry.session, entry.event_id)
