"""Every request without its terminal event: pure. What is shown, once and in order; what is due; who waits for it.

    COUNTING → PUBLISHING → WAITING → STREAMING → DONE

Replies may come late, twice, with gaps, from two workers, or before Kafka's acknowledgement of the request reached us.
Text is placed by its `offset`: an overlap is dropped, a gap is filled by the terminal event, which carries the whole
text. The first terminal event wins, whoever gives it: the worker, the client's cancel, the fallback or the deadline.
"""

import heapq
from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum, auto

import msgspec

from gateway.admission import FallbackReason
from gateway.outbox import Shown, cursor
from shared.deadline import Deadline
from shared.fallback import Fallback
from shared.messages import (
    Bucket,
    Grounding,
    Reason,
    ReplyDelta,
    ReplyDone,
    Response,
    ResponseCreated,
    ResponseDone,
    ServerMessage,
    Source,
    Status,
    Timings,
    Usage,
)

Item = ServerMessage | Shown

_REMEMBERED_DONE = 2_000
_REMEMBERED_MS = 120_000.0


class State(Enum):
    COUNTING = auto()
    PUBLISHING = auto()
    WAITING = auto()
    STREAMING = auto()
    DONE = auto()


@dataclass(slots=True, kw_only=True, eq=False)
class Entry:
    """One request. `connection_id` is the connection that hears of it; None after that was lost. `eta_ms` is the first
    text's predicted time from receipt; None where nothing is known, or the workers do not get the request."""

    response_id: str
    event_id: str
    tenant: str
    session_id: str
    connection_id: str | None
    input: str
    received_unix_ms: float
    deadline: Deadline
    state: State = State.COUNTING
    bucket: Bucket = "short"
    fallback: FallbackReason | None = None
    eta_ms: float | None = None
    published: bool = False
    admitted_unix_ms: float | None = None
    first_text_unix_ms: float | None = None
    attempt: int = -1
    diverged: bool = False
    chars: int = 0
    parts: list[str] = field(default_factory=list)
    response: Response | None = None
    done_unix_ms: float = 0.0

    @property
    def text(self) -> str:
        return "".join(self.parts)

    @property
    def done(self) -> bool:
        return self.state is State.DONE

    @property
    def created(self) -> bool:
        """Whether the client has been told that its answer is assured."""
        return self.state in {State.WAITING, State.STREAMING, State.DONE}


class InflightTable:
    """Owned by the gateway's event loop."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._by_event: dict[tuple[str, str], Entry] = {}
        self._done: OrderedDict[str, Entry] = OrderedDict()
        self._due: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, response_id: str) -> Entry | None:
        return self._entries.get(response_id)

    def find(self, tenant: str, session_id: str, event_id: str) -> Entry | None:
        """The request that this event asked for: unanswered, or answered a short while ago."""
        return self._by_event.get((f"{tenant}/{session_id}", event_id))

    def of_session(self, tenant: str, session_id: str) -> list[Entry]:
        return [e for e in self._entries.values() if (e.tenant, e.session_id) == (tenant, session_id)]

    # --- a request comes

    def accept(self, entry: Entry) -> None:
        self._entries[entry.response_id] = entry
        self._by_event[_event_key(entry)] = entry
        heapq.heappush(self._due, (entry.deadline.first_token_unix_ms, entry.response_id))
        heapq.heappush(self._due, (entry.deadline.deadline_unix_ms, entry.response_id))

    def refuse(self, entry: Entry) -> None:
        """It was never accepted after all: the client gets an error instead of an answer."""
        entry.state = State.DONE
        self._entries.pop(entry.response_id, None)
        self._by_event.pop(_event_key(entry), None)

    def admit(self, entry: Entry, bucket: Bucket, now_unix_ms: float) -> None:
        """Counted and on its way to Kafka."""
        if entry.state is State.COUNTING:
            entry.state = State.PUBLISHING
            entry.bucket = bucket
            entry.admitted_unix_ms = now_unix_ms

    def acknowledge(self, entry: Entry) -> list[Item]:
        """Kafka has the request. Replies that came sooner are shown now."""
        entry.published = True
        if entry.state is not State.PUBLISHING:
            return []
        entry.state = State.STREAMING if entry.chars else State.WAITING
        return [_created(entry), *([Shown(entry.response_id, 0, entry.text)] if entry.chars else [])]

    def reattach(self, entry: Entry, connection_id: str) -> list[Item]:
        """The client asks again, on this or another connection: all so far, never a second computation."""
        entry.connection_id = connection_id
        if not entry.created:
            return []
        items: list[Item] = [_created(entry)]
        if entry.chars:
            items.append(Shown(entry.response_id, 0, entry.text))
        if entry.response is not None:
            items.append(_done(entry, entry.response))
        return items

    def detach(self, connection_id: str) -> None:
        """A connection is gone; its requests go on (a dropped socket is not a cancel)."""
        for entry in self._entries.values():
            if entry.connection_id == connection_id:
                entry.connection_id = None

    # --- replies come

    def delta(self, reply: ReplyDelta, now_unix_ms: float) -> Shown | None:
        """The text that is new, to be shown now; None for what is late, repeated, or behind a gap."""
        entry = self._entries.get(reply.request_id)
        if entry is None or reply.attempt < entry.attempt or entry.diverged:
            return None
        entry.attempt = reply.attempt
        overlap = entry.chars - reply.offset
        text = reply.delta
        if overlap < 0:
            return None  # a delta was lost: the terminal event fills the gap
        if overlap > 0:
            shown = entry.text[reply.offset :]
            if shown[: len(text)] != text[: len(shown)]:
                entry.diverged = True
                return None
            text = text[overlap:]
        return self._show(entry, text, now_unix_ms) if text else None

    def _show(self, entry: Entry, text: str, now_unix_ms: float) -> Shown | None:
        shown = Shown(entry.response_id, entry.chars, text)
        entry.parts.append(text)
        entry.chars += len(text)
        if entry.first_text_unix_ms is None:
            entry.first_text_unix_ms = now_unix_ms
        if entry.state is State.WAITING:
            entry.state = State.STREAMING
        return shown if entry.created else None

    def finish(self, entry: Entry, reply: ReplyDone, now_unix_ms: float) -> list[Item]:
        """The worker's terminal event. Where its text does not continue what was shown, the answer has failed: two
        texts are never spliced."""
        if not entry.created:
            _drop_unseen(entry)
        items = self.acknowledge(entry)
        if not reply.output_text.startswith(entry.text):
            return self._end(entry, now_unix_ms, status="failed", reason="internal", source="model", reply=reply)
        new = reply.output_text[entry.chars :]
        rest = self._show(entry, new, now_unix_ms) if new else None
        return [
            *items,
            *([rest] if rest else []),
            *self._end(entry, now_unix_ms, status=reply.status, reason=reply.reason, source=reply.source, reply=reply),
        ]

    # --- the gateway itself ends it

    def fall_back(self, entry: Entry, fallback: Fallback, now_unix_ms: float) -> list[Item]:
        """The FAQ answers. Only where nothing of the model's text was shown."""
        if entry.chars and entry.created:
            raise AssertionError(f"{entry.response_id} has text already")
        items = [] if entry.created else [_created(entry)]
        _drop_unseen(entry)
        entry.state = State.STREAMING
        shown = self._show(entry, fallback.text, now_unix_ms)
        ended = self._end(
            entry,
            now_unix_ms,
            status="completed",
            reason="stop",
            source=fallback.source,
            grounding=fallback.grounding,
        )
        return [*items, *([shown] if shown else []), *ended]

    def cut(self, entry: Entry, now_unix_ms: float) -> list[Item]:
        """The deadline: what is written stands, the rest is cut."""
        return self._end(entry, now_unix_ms, status="incomplete", reason="deadline", source="model")

    def cancel(self, entry: Entry, now_unix_ms: float) -> list[Item]:
        """The client does not want it any more."""
        items: list[Item] = []
        if not entry.created:
            _drop_unseen(entry)
            items.append(_created(entry))
        return [*items, *self._end(entry, now_unix_ms, status="cancelled", reason="client", source="model")]

    def _end(
        self,
        entry: Entry,
        now_unix_ms: float,
        *,
        status: Status,
        reason: Reason,
        source: Source,
        reply: ReplyDone | None = None,
        grounding: tuple[Grounding, ...] = (),
    ) -> list[Item]:
        entry.state = State.DONE
        entry.done_unix_ms = now_unix_ms
        entry.response = Response(
            id=entry.response_id,
            status=status,
            reason=reason,
            source=source,
            output_text=entry.text,
            usage=reply.usage if reply else Usage(),
            timings=_timings(entry, reply.timings if reply else Timings(), now_unix_ms),
            model=reply.model if reply else None,
            error=reply.error if reply else None,
            grounding=reply.grounding if reply else grounding,
        )
        del self._entries[entry.response_id]
        self._remember(entry)
        return [_done(entry, entry.response)]

    def _remember(self, entry: Entry) -> None:
        """For a while, a repeated event finds its answer."""
        self._done[entry.response_id] = entry
        oldest_ms = entry.done_unix_ms - _REMEMBERED_MS
        while self._done:
            first = next(iter(self._done.values()))
            if len(self._done) <= _REMEMBERED_DONE and first.done_unix_ms >= oldest_ms:
                break
            self._done.popitem(last=False)
            if self._by_event.get(_event_key(first)) is first:
                del self._by_event[_event_key(first)]

    def forget_session(self, tenant: str, session_id: str) -> None:
        """Drop the remembered answers of a deleted session."""
        for entry in [e for e in self._done.values() if (e.tenant, e.session_id) == (tenant, session_id)]:
            del self._done[entry.response_id]
            self._by_event.pop(_event_key(entry), None)

    # --- time passes

    def next_due_unix_ms(self) -> int | None:
        """When `late` has to be asked next."""
        while self._due and self._due[0][1] not in self._entries:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def late(self, now_unix_ms: float) -> list[Entry]:
        """Requests that missed a deadline: without text the first token's, else the answer's. Each is to be ended now,
        by `fall_back` where nothing was shown, else by `cut`."""
        late: dict[str, Entry] = {}
        while (due := self.next_due_unix_ms()) is not None and due <= now_unix_ms:
            _, response_id = heapq.heappop(self._due)
            entry = self._entries[response_id]
            started = entry.created and bool(entry.chars)
            if entry.deadline.expired(now_unix_ms, started=started):
                late[response_id] = entry
        return list(late.values())


def _drop_unseen(entry: Entry) -> None:
    """Text that came before the client heard of its answer: it is replaced, not continued."""
    entry.parts.clear()
    entry.chars = 0
    entry.first_text_unix_ms = None


def _event_key(entry: Entry) -> tuple[str, str]:
    return (f"{entry.tenant}/{entry.session_id}", entry.event_id)


def _created(entry: Entry) -> ResponseCreated:
    return ResponseCreated(
        response_id=entry.response_id,
        event_id=entry.event_id,
        bucket=entry.bucket,
        eta_ms=round(entry.eta_ms) if entry.eta_ms is not None else None,
    )


def _done(entry: Entry, response: Response) -> ResponseDone:
    return ResponseDone(response=response, cursor=cursor(entry.response_id, entry.chars))


def _timings(entry: Entry, worker: Timings, now_unix_ms: float) -> Timings:
    """The worker's timings and the gateway's own."""
    start = entry.received_unix_ms
    return msgspec.structs.replace(
        worker,
        admission_ms=round(entry.admitted_unix_ms - start, 3) if entry.admitted_unix_ms is not None else None,
        ttft_ms=round(entry.first_text_unix_ms - start, 3) if entry.first_text_unix_ms is not None else None,
        total_ms=round(now_unix_ms - start, 3),
    )
