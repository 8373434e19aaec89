"""An answer as it is written: tokens in, deltas and the terminal event out. Pure."""

from collections.abc import Callable, Sequence

from shared.messages import ErrorDetail, Grounding, Reason, ReplyDelta, ReplyDone, Source, Status, Timings, Usage
from workers.detokenizer import Detokenizer


class Answer:
    """The text of one request so far, and what of it has been handed out."""

    def __init__(
        self,
        *,
        request_id: str,
        session_id: str,
        attempt: int,
        token_bytes: Callable[[int], bytes],
        stops: Sequence[str],
    ) -> None:
        self._request_id = request_id
        self._session_id = session_id
        self._attempt = attempt
        self._detokenizer = Detokenizer(token_bytes, stops)
        self._text: list[str] = []
        self._pending: list[str] = []
        self._seq = 0
        self._offset = 0

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found."""
        return self._detokenizer.stopped

    @property
    def told(self) -> bool:
        """Whether any of the text has been handed out."""
        return self._seq > 0

    @property
    def text(self) -> str:
        return "".join(self._text)

    def add(self, token_id: int) -> None:
        self._grow(self._detokenizer.feed(token_id))

    def finish(self) -> None:
        """The sequence has ended: what was held back is text after all."""
        self._grow(self._detokenizer.finish())

    def take_delta(self) -> ReplyDelta | None:
        """The text since the last delta; None where there is none."""
        if not self._pending:
            return None
        delta = "".join(self._pending)
        self._pending.clear()
        message = ReplyDelta(
            request_id=self._request_id,
            session_id=self._session_id,
            attempt=self._attempt,
            seq=self._seq,
            offset=self._offset,
            delta=delta,
        )
        self._seq += 1
        self._offset += len(delta)
        return message

    def so_far(self) -> ReplyDelta | None:
        """All the text there is, for one more reader; what it is told later may begin within it. May be asked on any
        thread."""
        text = self.text
        if not text:
            return None
        return ReplyDelta(
            request_id=self._request_id, session_id=self._session_id, attempt=self._attempt, seq=0, offset=0, delta=text
        )

    def done(
        self,
        *,
        status: Status,
        reason: Reason,
        usage: Usage,
        timings: Timings,
        model: str,
        grounding: tuple[Grounding, ...] = (),
        error: ErrorDetail | None = None,
    ) -> ReplyDone:
        return self.replaced(
            text=self.text,
            source="model",
            status=status,
            reason=reason,
            usage=usage,
            timings=timings,
            model=model,
            grounding=grounding,
            error=error,
        )

    def replaced(
        self,
        *,
        text: str,
        source: Source,
        status: Status,
        reason: Reason,
        usage: Usage,
        timings: Timings,
        model: str | None = None,
        grounding: tuple[Grounding, ...] = (),
        error: ErrorDetail | None = None,
    ) -> ReplyDone:
        """A terminal event whose text is not the model's."""
        return ReplyDone(
            request_id=self._request_id,
            session_id=self._session_id,
            attempt=self._attempt,
            status=status,
            reason=reason,
            source=source,
            output_text=text,
            usage=usage,
            timings=timings,
            model=model,
            error=error,
            grounding=grounding,
        )

    def _grow(self, text: str) -> None:
        if text:
            self._text.append(text)
            self._pending.append(text)
