"""HTTP statuses and headers of errors. Pure."""

from typing import Final

from gateway.http.encodings import ACCEPTED
from shared.wire.outcome import ErrorDetail

_STATUS: Final = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "rate_limit_error": 429,
    "overloaded_error": 503,
    "server_error": 500,
}
_STATUS_OF_CODE: Final = {
    "body_too_large": 413,
    "body_too_slow": 408,
    "cancelled": 409,
    "conversation_not_found": 404,
    "headers_too_large": 431,
    "key_reused": 409,
    "lost_race": 409,
    "method_not_allowed": 405,
    "model_not_found": 404,
    "nobody_in_time": 504,
    "not_an_agent": 403,
    "not_found": 404,
    "not_taken": 409,
    "origin_not_allowed": 403,
    "response_not_found": 404,
    "retried": 409,
    "unknown_response": 404,
    "unsupported_encoding": 415,
    "unsupported_transfer_encoding": 501,
}
_RETRY_AFTER_MS: Final = 1_000
# Statuses on which clients retry by themselves unless a header forbids it.
_RETRIED: Final = frozenset({408, 409, 429})
_SERVER_FAULT: Final = 500


def status_of(error: ErrorDetail) -> int:
    status = _STATUS_OF_CODE.get(error.code) or _STATUS[error.type]
    return 503 if status == _SERVER_FAULT and error.retryable else status


def error_headers(error: ErrorDetail) -> dict[str, str]:
    """Return the headers by which a client library decides how, and after how long, to repeat a failed request.

    OpenAI's libraries repeat some statuses by themselves. An error that may be retried gets `Retry-After` (seconds) and
    `retry-after-ms`. For any other error with such a status, `x-should-retry: false` stops the library.
    """
    status = status_of(error)
    if error.code == "unsupported_encoding":
        return {"accept-encoding": ACCEPTED}
    if error.retryable:
        wait_ms = error.retry_after_ms or _RETRY_AFTER_MS
        return {"retry-after": str(-(-wait_ms // 1_000)), "retry-after-ms": str(wait_ms)}
    return {"x-should-retry": "false"} if status in _RETRIED or status >= _SERVER_FAULT else {}
