"""Turn an answer's tokens into deltas and the terminal event. Pure.

    tokens → detokenizer → guard, if there is one → text → deltas

Deltas, `so_far` and the terminal event have the text that the guard has let pass. After an answer's first text its
tokens are read when the next delta is due, since a read costs the same for any number of tokens.
"""

import codecs
import re
from collections.abc import Callable, Sequence
from typing import Final

from shared.wire.lanes import CHAMPION, Lane
from shared.wire.messages import ReplyDelta, ReplyDone
from shared.wire.outcome import ErrorDetail, Grounding, Outcome, Reason, Source, Status, Timings, Usage
from workers.answer.guard import FactGuard
from workers.answer.thoughts import Thoughts


class Detokenizer:
    """Decodes tokens incrementally. Byte-level BPE splits characters across tokens, so bytes are held back until their
    character is complete; invalid bytes become U+FFFD. Text that may yet become a stop string is held back too. The
    stop string itself is never shown."""

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._stops = stops
        self._thoughts = Thoughts()
        self._held = ""
        self.stopped = False

    def feed(self, tokens: bytes) -> str:
        """Feed the bytes of tokens and return the text that can be shown now. It is empty after a stop string was found
        (`stopped`)."""
        return self.release(self._thoughts.feed(self._decode(tokens)))

    def finish(self, *, whole: bool = True) -> str:
        """Return the text that was held back because it could begin a stop string or a thought. An incomplete character
        is left out. If the answer is not `whole`, so is text that may be a thought."""
        text = self.release(self._thoughts.finish(whole=whole)) + self._held
        self._held = ""
        return text

    def release(self, text: str) -> str:
        """Return the part of `text` that can be shown, and hold back its end if that may begin a stop string. Nothing
        is shown after a stop string."""
        if self.stopped or not self._stops:
            return "" if self.stopped else text
        text = self._held + text
        found = min((at for stop in self._stops if (at := text.find(stop)) >= 0), default=-1)
        if found >= 0:
            self.stopped, self._held = True, ""
            return text[:found]
        keep = max(_overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of `text` begin `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)


_TOGETHER: Final = 8
_MAY_END: Final = re.compile(rb"[.!?\n\x80-\xff]").search


class Answer:
    """The text of one request so far, and how much of it has been sent. `revision` is the version that writes it, on a
    worker of the `lane`."""

    def __init__(
        self,
        *,
        request_id: str,
        session_id: str,
        attempt: int,
        token_bytes: Callable[[int], bytes],
        stops: Sequence[str],
        guard: FactGuard | None = None,
        revision: str = "",
        lane: Lane = CHAMPION,
    ) -> None:
        self._request_id = request_id
        self._session_id = session_id
        self.attempt = attempt
        self.revision = revision
        self._lane = lane
        self._token_bytes = token_bytes
        self._unread: list[bytes] = []
        self._stops = stops
        self._detokenizer = Detokenizer(stops)
        self._guard = guard
        self._text: list[str] = []
        self._pending: list[str] = []
        self._seq = 0
        self._offset = 0

    @property
    def stopped(self) -> bool:
        """Return whether the sequence is to end: a stop string was found, or the guard has cut the answer."""
        return self._detokenizer.stopped or (self._guard is not None and self._guard.cut)

    @property
    def stopped_by_client(self) -> bool:
        """Return whether a stop string that the client named was found."""
        return self._detokenizer.stopped

    @property
    def begins(self) -> bool:
        """Return whether the answer's first text is ready and not sent yet."""
        return self._seq == 0 and bool(self._pending)

    @property
    def withheld(self) -> bool:
        """Return whether the guard has left out all of the answer."""
        return self._guard is not None and bool(self._guard.replaced) and not self._text

    @property
    def abstained(self) -> bool:
        """Return whether the model has written that it does not know the answer."""
        return self._guard is not None and self._guard.abstained

    @property
    def text(self) -> str:
        return "".join(self._text)

    def add(self, token_id: int) -> bool:
        """Add a token. Return True if all tokens were read, so that the answer may now have begun or `stopped`. Tokens
        are read immediately until the first text, and always if there are stop strings."""
        piece = self._token_bytes(token_id)
        self._unread.append(piece)
        if not self._stops and (self._seq or self._waits_for_more(piece)):
            return False
        self._read()
        return True

    def add_text(self, text: str) -> None:
        """Add text that an upstream has decoded, without its thoughts."""
        self._feed(self._detokenizer.release(text))

    def finish(self, *, whole: bool = True) -> None:
        """End the sequence and release the text that was held back. If the answer is not `whole`, it was cut off, and
        its last characters may be part of a stop string or thought."""
        self._read()
        text = self._detokenizer.finish(whole=whole)
        self._grow(text if self._guard is None else self._guard.feed(text) + self._guard.finish(whole=whole))

    def pop_delta(self) -> ReplyDelta | None:
        """Return the text since the last delta and mark it as sent; None if there is no new text."""
        self._catch_up()
        if not self._pending:
            return None
        delta = "".join(self._pending)
        self._pending.clear()
        message = ReplyDelta(
            request_id=self._request_id,
            session_id=self._session_id,
            attempt=self.attempt,
            seq=self._seq,
            offset=self._offset,
            delta=delta,
            revision=self.revision,
        )
        self._seq += 1
        self._offset += len(delta)
        return message

    def so_far(self) -> ReplyDelta:
        """Return all text so far, for a reader that joins now. The first delta after it may repeat part of this text.
        Can be called on any thread."""
        return ReplyDelta(
            request_id=self._request_id,
            session_id=self._session_id,
            attempt=self.attempt,
            seq=0,
            offset=0,
            delta=self.text,
            revision=self.revision,
        )

    def done(
        self,
        *,
        status: Status,
        reason: Reason,
        usage: Usage,
        timings: Timings,
        model: str | None = None,
        grounding: tuple[Grounding, ...] = (),
        error: ErrorDetail | None = None,
        faq_version: int | None = None,
        instead: tuple[str, Source] | None = None,
    ) -> ReplyDone:
        """Return the terminal event. `model` wrote it; `instead`: a text that is not the model's, and whose it is."""
        self._catch_up()
        text, source = instead or (self.text, self._source())
        return ReplyDone(
            request_id=self._request_id,
            session_id=self._session_id,
            attempt=self.attempt,
            status=status,
            reason=reason,
            source=source,
            output_text=text,
            usage=usage,
            timings=timings,
            model=model,
            revision=(self.revision or None) if model is not None else None,
            lane=self._lane if self._lane != CHAMPION else None,
            error=error,
            grounding=grounding,
            faq_version=faq_version,
            replaced=() if instead or self._guard is None else self._guard.replaced,
        )

    def ended(self, outcome: Outcome) -> ReplyDone:
        """Return the terminal event of an answer that was ended elsewhere."""
        return outcome.within(ReplyDone, request_id=self._request_id, session_id=self._session_id, attempt=self.attempt)

    def _source(self) -> Source:
        if self._guard is None or not any(each.length for each in self._guard.replaced):
            return "model"
        return "mixed" if self._guard.is_models else "faq"

    def _waits_for_more(self, piece: bytes) -> bool:
        """Return whether a guard shows nothing yet: no sentence has ended, and it is not long enough to be cut."""
        guard = self._guard
        if guard is None or guard.may_end or len(self._unread) >= _TOGETHER:
            return False
        return _MAY_END(piece) is None

    def _catch_up(self) -> None:
        """Read what was left for later."""
        if self._unread and self._seq:
            self._read()

    def _read(self) -> None:
        tokens, self._unread = b"".join(self._unread), []
        self._feed(self._detokenizer.feed(tokens))

    def _feed(self, text: str) -> None:
        self._grow(text if self._guard is None else self._guard.feed(text))

    def _grow(self, text: str) -> None:
        if text:
            self._text.append(text)
            self._pending.append(text)
