"""An answer's state, its text so far and its end. Pure.

COUNTING → PUBLISHING → WAITING → STREAMING → DONE
"""

from dataclasses import dataclass, field
from enum import IntEnum, auto
from typing import Final

from gateway.destination.admission import FallbackReason
from shared.wire.messages import ReplyDelta, ReplyDone
from shared.wire.outcome import Response

# An attempt counts as streaming for this long after its last delta. The value is below `kafka.session_timeout_ms`,
# after which Kafka reassigns a dead worker's requests, and above the longest time that the guard holds a sentence back.
_FLOWS_MS: Final = 5_000.0


class AnswerState(IntEnum):
    """In their order. Numbers, because a plain enum's hash is computed in Python, and every question needs dozens."""

    COUNTING = auto()
    PUBLISHING = auto()
    WAITING = auto()
    STREAMING = auto()
    DONE = auto()


# An answer may begin before Kafka has acknowledged its request: from the FAQ, or with an answer that another gateway
# has already given.
_NEXT: Final = {
    AnswerState.COUNTING: {AnswerState.PUBLISHING, AnswerState.WAITING, AnswerState.STREAMING, AnswerState.DONE},
    AnswerState.PUBLISHING: {AnswerState.WAITING, AnswerState.STREAMING, AnswerState.DONE},
    AnswerState.WAITING: {AnswerState.STREAMING, AnswerState.DONE},
    AnswerState.STREAMING: {AnswerState.DONE},
    AnswerState.DONE: set[AnswerState](),
}


@dataclass(slots=True)
class Aside:
    """A second text of the same answer, kept while the first one is shown. `end` is set once the text is complete."""

    attempt: int
    revision: str
    text: str = ""
    end: ReplyDone | None = None

    def gives_way_to(self, attempt: int) -> bool:
        """Return whether a newer attempt replaces this text. A complete text is never replaced."""
        return self.end is None and attempt > self.attempt

    def add(self, reply: ReplyDelta) -> None:
        if self.attempt == reply.attempt and self.end is None and reply.offset <= len(self.text):
            self.text = self.text[: reply.offset] + reply.delta


@dataclass(slots=True, kw_only=True)
class Answer:
    """The answer to one request. Only `advance` changes `state`, `created` and `done`.

    Attributes:
        created: `response.created` was sent to the client
        done: the answer has ended
        attempt: the worker's attempt that wrote the newest text; -1 before the first delta
        last_delta_unix_ms: when the last delta that agrees with the text arrived
        agreed: for each attempt, how many characters of its text equal the text here
        revision: the model version that wrote the text; None before the first delta
        aside: text by another version, or different text by another attempt, kept while the first text is shown
        begun_again: the text in `aside` has replaced the first text
        fallback: why the FAQ answers
        stood_in: a gateway answered from the FAQ or with "busy" instead of the model; False if a worker chose an FAQ
            entry
        settled: the end was delivered to the client and counted in the metrics
    """

    state: AnswerState = AnswerState.COUNTING
    created: bool = False
    done: bool = False
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

    def advance(self, state: AnswerState) -> None:
        """Advance to a later state. Raises `AssertionError` on an illegal transition."""
        if state not in _NEXT[self.state]:
            raise AssertionError(f"{self.state.name} → {state.name}")
        self.state = state
        self.created, self.done = state >= AnswerState.WAITING, state is AnswerState.DONE

    def admit(self, now_unix_ms: float) -> None:
        """Admit a request whose tokens were counted; its publication begins."""
        if self.state is AnswerState.COUNTING:
            self.advance(AnswerState.PUBLISHING)
            self.admitted_unix_ms = now_unix_ms

    @property
    def is_silent(self) -> bool:
        """Return whether the answer came from the fallback because a worker sent an empty one before the deadline."""
        return self.fallback == "silent"

    @property
    def text(self) -> str:
        return "".join(self.parts)

    @property
    def has_delta(self) -> bool:
        """Return whether a delta from a worker has arrived at this gateway."""
        return self.attempt >= 0

    @property
    def visible(self) -> bool:
        """Return whether the answer has text that the client may see."""
        return self.created and bool(self.chars)

    def append(self, text: str) -> None:
        self.parts.append(text)
        self.chars += len(text)

    def place(self, reply: ReplyDelta, now_unix_ms: float) -> str:
        """Place a delta by its offset and return the text it adds to the answer.

        Returns an empty string if the delta is repeated, follows a gap, arrives after the end, or belongs to a
        different text. If two attempts write the same text, the one that is ahead extends it: after a rebalance the
        former worker may keep writing while the new one starts from the beginning. Different text, by a later attempt
        or another version, is kept in `aside`.
        """
        if self.aside is not None and reply.attempt == self.aside.attempt:
            self.aside.add(reply)
            return ""
        if reply.revision != self.revision and not self._bind(reply):
            return ""
        agreed = self.agreed.get(reply.attempt, 0)
        if self.done or reply.offset > agreed:
            return ""  # a delta was lost, or the texts differ: the terminal event carries the whole text
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
        """Bind the answer to the version that wrote this delta and return True. Return False if text of another version
        is visible; the delta is then kept in `aside`."""
        if self.done or reply.attempt < self.attempt:
            return False
        if self.visible:
            self._hold_aside(reply)
            return False
        self.drop_text()
        self.revision = reply.revision
        return True

    def _hold_aside(self, reply: ReplyDelta, *, before: str = "") -> None:
        """Keep a delta of a different text in `aside`, preceded by `before`. Ignore deltas of earlier attempts."""
        if self.visible and reply.attempt > self.attempt:
            if self.aside is None or self.aside.gives_way_to(reply.attempt):
                self.aside = Aside(reply.attempt, reply.revision, before)
            self.aside.add(reply)

    def drop_text(self) -> None:
        """Drop the text of any version, because another text replaces it."""
        self.parts.clear()
        self.chars = 0
        self.first_text_unix_ms = None
        self.revision = None
        self.agreed.clear()

    def flows(self, attempt: int, now_unix_ms: float) -> bool:
        """Return whether a different attempt than `attempt` has streamed text within the last `_FLOWS_MS`."""
        return self.visible and attempt != self.attempt and self.silent_in_ms(now_unix_ms) >= 0

    # --- two texts

    def is_foreign(self, reply: ReplyDone, *, continues: bool) -> bool:
        """Return whether an end belongs to a different text than the visible one.

        An end by another attempt is foreign if its text does not continue the visible text, or if it names another
        version. An end without a version is attributed to the version of its attempt.
        """
        if not self.visible or reply.attempt == self.attempt:
            return False
        return not continues or (reply.revision or "") != (self.revision or "")

    def silent_in_ms(self, now_unix_ms: float) -> float:
        """Return how many ms may still pass without new text before the worker counts as silent; negative afterwards.

        A silent worker's text is replaced by another worker's (`pop_aside`).
        """
        return self.last_delta_unix_ms + _FLOWS_MS - now_unix_ms

    def hold_end(self, reply: ReplyDone) -> None:
        """Keep another complete answer in `aside`. The first complete answer is kept, later ones are ignored."""
        if self.aside is None or self.aside.end is None:
            self.aside = Aside(reply.attempt, reply.revision or "", reply.output_text, reply)

    def pop_aside(self, now_unix_ms: float) -> Aside | None:
        """Replace the visible text by the one in `aside` and return that. Return None while the visible text is still
        streaming."""
        aside = self.aside
        if aside is None or self.done or not aside.text or self.silent_in_ms(now_unix_ms) >= 0:
            return None
        self.drop_text()
        self.attempt, self.revision, self.last_delta_unix_ms = aside.attempt, aside.revision, now_unix_ms
        self.agreed[aside.attempt] = len(aside.text)
        self.aside, self.begun_again = None, True
        return aside
