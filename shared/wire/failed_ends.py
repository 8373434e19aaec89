"""The end of an answer that cannot be given."""

from typing import Final

from shared.errors import ProtocolError
from shared.wire.messages import ReplyDone
from shared.wire.outcome import ErrorDetail, Outcome

OWN_FAULT: Final = ErrorDetail(
    type="server_error",
    code="internal",
    message="a fault of Replyline's own in this answer; ask again",
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
    """Return a failed terminal event; `text` is what was published of the answer before."""
    outcome = Outcome.uncounted("failed", "internal", output_text=text, error=error)
    return outcome.within(ReplyDone, request_id=request_id, session_id=session_id, attempt=attempt)


def detail_of(error: ProtocolError) -> ErrorDetail:
    """Return an error as its sender gets it."""
    return ErrorDetail(
        type=error.kind,
        code=error.code,
        message=str(error),
        retryable=error.retriable,
        param=error.param,
        retry_after_ms=error.retry_after_ms,
    )
