"""Builders of what crosses the wire of an answer: its deltas and its end."""

from typing import Any

from shared.wire.messages import ReplyDelta, ReplyDone
from shared.wire.outcome import Timings, Usage


def delta(
    text: str,
    offset: int = 0,
    seq: int = 0,
    request_id: str = "r",
    *,
    session_id: str = "s",
    attempt: int = 1,
    revision: str = "",
) -> ReplyDelta:
    names = {"request_id": request_id, "session_id": session_id, "attempt": attempt}
    return ReplyDelta(seq=seq, offset=offset, delta=text, revision=revision, **names)


def done(
    text: str = "Hello", request_id: str = "r", *, session_id: str = "s", attempt: int = 1, **fields: Any
) -> ReplyDone:
    """Whole, by the model."""
    given: dict[str, Any] = {"status": "completed", "reason": "stop", "source": "model"}
    given |= {"usage": Usage(), "timings": Timings()}
    names = {"request_id": request_id, "session_id": session_id, "attempt": attempt}
    return ReplyDone(output_text=text, **names, **(given | fields))
