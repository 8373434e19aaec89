"""The terminal event of an answer that failed."""

from typing import Final

from shared.errors import ProtocolError
from shared.wire.messages import ReplyDone
from shared.wire.outcome import ErrorDetail, Outcome

OWN_FAULT: Final = ErrorDetail(
    type="server_error",
    code="internal",
    message="an internal fault of Replyline in this answer; ask again",
    retryable=True,
)


def failed_end(
    request_id: str,
    session_id: str,
    error: ErrorDetail,
    *,
    attempt: int,
    text: str = "",
) -> ReplyDone:
    """Return a failed terminal event. `text` is the part of the answer that was already published."""
    outcome = Outcome.uncounted("failed", "internal", output_text=text, error=error)
    return outcome.within(ReplyDone, request_id=request_id, session_id=session_id, attempt=attempt)


def detail_of(error: ProtocolError) -> ErrorDetail:
    """Return an error as sent to the client."""
    return ErrorDetail(
        type=error.kind,
        code=error.code,
        message=str(error),
        retryable=error.retriable,
        param=error.param,
        retry_after_ms=error.retry_after_ms,
    )
