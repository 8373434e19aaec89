"""Turn a refused question, or an answer that ended without any text, into the error that HTTP and gRPC clients get.
Pure."""

from typing import Any

from shared.errors import ProtocolError
from shared.wire.outcome import ErrorDetail, Response


class RefusalError(ProtocolError):
    """An error that the gateway has already counted."""

    def __init__(self, error: ErrorDetail) -> None:
        super().__init__(
            error.code,
            error.message,
            kind=error.type,
            param=error.param,
            retriable=error.retryable,
            retry_after_ms=error.retry_after_ms,
        )


def no_answer(response: Response, *, late: bool) -> ErrorDetail | None:
    """Return the error for an answer without text; None if it has text. `late`: the deadline has passed, so a retry is
    useless."""
    if response.status == "failed" and response.error is not None:
        return response.error
    if response.status == "cancelled":
        return _failure("cancelled", "the answer was cancelled", kind="invalid_request_error")
    if response.source == "busy" and late:
        return _failure("nobody_in_time", "no worker could answer in time")
    if response.source == "busy":
        return _failure("busy", "all workers are busy; try again", kind="overloaded_error", retryable=True)
    return None


def _failure(code: str, message: str, *, kind: Any = "server_error", retryable: bool = False) -> ErrorDetail:
    return ErrorDetail(type=kind, code=code, message=message, retryable=retryable)
