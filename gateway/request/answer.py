"""Hold an answer's state, its text so far and its end. Pure.

COUNTING → PUBLISHING → WAITING → STREAMING → DONE
"""

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from gateway.destination.admission import FallbackReason
from shared.wire.messages import ReplyDelta, ReplyDone
from shared.wire.outcome import Response

# Text flows as long as the last piece is no older: less than `kafka.session_timeout_ms`, after which a dead worker's
# requests are another's, and more than the guard holds a sentence back.
_FLOWS_MS: Final = 5_000.0


class State(Enum):
    COUNTING = auto()
    PUBLISHING = auto()
    WAITING = auto()
    STREAMING = auto()
    DONE = auto()


# An answer may begin before Kafka has its request: by the FAQ, or where another gateway's answer to it is found.
_NEXT: Final = {
    State.COUNTING: {State.PUBLISHING, State.WAITING, State.STREAMING, State.DONE},
    State.PUBLISHING: {State.WAITING, State.STREAMING, State.DONE},
    State.WAITING: {State.STREAMING, State.DONE},
    State.STREAMING: {State.DONE},
    State.DONE: set[State](),
}


@dataclass(slots=True)
class Aside:
    """Another text of an answer, held while the first is shown; `end` once it is whole."""

    attempt: int
    revision: str
    text: str = ""
    end: ReplyDone | None = None

    def gives_way_to(self, attempt: int) -> bool:
        """Return whether a newer attempt is held in its place: until one of them is whole."""
        return self.end is None and attempt > self.attempt

    def add(self, reply: ReplyDelta) -> None:
        if self.attempt == reply.attempt and self.end is None and reply.offset <= len(self.text):
            self.text = self.text[: reply.offset] + reply.delta


@dataclass(slots=True, kw_only=True)
class Answer:
    """The answer to one request; only `advance` changes its `state`.

    `attempt` is the one that wrote the newest text here; -1 before the first delta. The last delta that agrees with
    the text arrived at `last_delta_unix_ms`. `agreed` is, by attempt, how many characters of its text are those here.
    `revision` is that of the version whose text is here; None before the first. What another version, or another
    attempt in other words, writes while that is shown is held `aside`; `begun_again`: it took the first's place.
    `fallback` is why the FAQ answers. `stood_in`: a gateway answered from the FAQ or with "busy" in the model's stead;
    a worker that gives the FAQ's entry decided so itself. `settled`: the end was delivered, and is in the metrics."""

    state: State = State.COUNTING
    parts: list[str] = field(default_factory=list)
    chars: int = 0
    attempt: int = -1
    last_delta_unix_ms: float = 0.0
    agreed: dict[int, int] = field(default_factory=dict)
    revision: str | None = None
    aside: Aside | None = None
    begun_again: bool = False
    admitted_unix_ms: float | None = None
    first_text_unix_ms: float | None = None
    fallback: FallbackReason | None = None
    stood_in: bool = False
    response: Response | None = None
    done_unix_ms: float = 0.0
    settled: bool = False

    def advance(self, state: State) -> None:
        """Advance to a later state; an illegal step is our own bug."""
        if state not in _NEXT[self.state]:
            raise AssertionError(f"{self.state.name} → {state.name}")
        self.state = state

    @property
    def is_silent(self) -> bool:
        """Return whether the model ended without text, and not for lack of time."""
        return self.fallback == "silent"

    @property
    def text(self) -> str:
        return "".join(self.parts)

    @property
    def done(self) -> bool:
        return self.state is State.DONE

    @property
    def created(self) -> bool:
        """Return whether the client has its `response.created`."""
        return self.state in {State.WAITING, State.STREAMING, State.DONE}

    @property
    def has_delta(self) -> bool:
        """Return whether a worker's delta has arrived here."""
        return self.attempt >= 0

    @property
    def visible(self) -> bool:
        """Return whether there is text that the client may see."""
        return self.created and bool(self.chars)

    def append(self, text: str) -> None:
        self.parts.append(text)
        self.chars += len(text)

    def place(self, reply: ReplyDelta, now_unix_ms: float) -> str:
        """Place a delta by its offset; return the text that it adds: nothing where it is repeated, behind a gap, behind
        the answer's end, another text, or another version's. Of two attempts that write the same text the one that is
        ahead adds to it: a worker whose partition has moved writes on while the next one begins anew. A later attempt's
        other text is held aside, as another version's is."""
        if self.aside is not None and reply.attempt == self.aside.attempt:
            self.aside.add(reply)
            return ""
        if reply.revision != self.revision and not self._bind(reply):
            return ""
        agreed = self.agreed.get(reply.attempt, 0)
        if self.done or reply.offset > agreed:
            return ""  # after a delta that was lost, or another text: the terminal event has the whole
        text = reply.delta
        known = self.text[reply.offset :] if reply.offset < self.chars else ""
        if known[: len(text)] != text[: len(known)]:
            self._hold_aside(reply, before=self.text[: reply.offset])
            return ""
        self.agreed[reply.attempt] = max(agreed, reply.offset + len(text))
        self.last_delta_unix_ms = now_unix_ms
        added = text[len(known) :]
        if added or not self.has_delta:
            self.attempt = reply.attempt
        return added

    def _bind(self, reply: ReplyDelta) -> bool:
        """Have the answer be the version's that writes this delta; hold the delta aside where another's text is shown,
        and return False."""
        if self.done or reply.attempt < self.attempt:
            return False
        if self.visible:
            self._hold_aside(reply)
            return False
        self.drop_text()
        self.revision = reply.revision
        return True

    def _hold_aside(self, reply: ReplyDelta, *, before: str = "") -> None:
        """Hold a delta of another text aside, with what stood `before` it; nothing of an earlier attempt."""
        if self.visible and reply.attempt > self.attempt:
            if self.aside is None or self.aside.gives_way_to(reply.attempt):
                self.aside = Aside(reply.attempt, reply.revision, before)
            self.aside.add(reply)

    def drop_text(self) -> None:
        """Drop the text, whatever version wrote it: it is replaced, not continued."""
        self.parts.clear()
        self.chars = 0
        self.first_text_unix_ms = None
        self.revision = None
        self.agreed.clear()

    def flows(self, attempt: int, now_unix_ms: float) -> bool:
        """Return whether another attempt than this one has shown text a moment ago."""
        return self.visible and attempt != self.attempt and self.silent_in_ms(now_unix_ms) >= 0

    # --- two texts

    def is_foreign(self, reply: ReplyDone, *, continues: bool) -> bool:
        """Return whether an end is of another text than the one that is shown: another version's, or another attempt's
        that does not `continue` it. An end that names no version is by its attempt's."""
        if not self.visible or reply.attempt == self.attempt:
            return False
        return not continues or (reply.revision or "") != (self.revision or "")

    def silent_in_ms(self, now_unix_ms: float) -> float:
        """Return how long the text shown may still be waited for."""
        return self.last_delta_unix_ms + _FLOWS_MS - now_unix_ms

    def hold_end(self, reply: ReplyDone) -> None:
        """Hold another whole answer; the first that comes stays."""
        if self.aside is None or self.aside.end is None:
            self.aside = Aside(reply.attempt, reply.revision or "", reply.output_text, reply)

    def pop_aside(self, now_unix_ms: float) -> Aside | None:
        """Drop the text shown and return what is held aside, once the shown text is silent; None before that."""
        aside = self.aside
        if aside is None or self.done or not aside.text or self.silent_in_ms(now_unix_ms) >= 0:
            return None
        self.drop_text()
        self.attempt, self.revision, self.last_delta_unix_ms = aside.attempt, aside.revision, now_unix_ms
        self.agreed[aside.attempt] = len(aside.text)
        self.aside, self.begun_again = None, True
        return aside
