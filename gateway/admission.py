"""Whether a request is taken: pure. What cannot be taken is refused at once, with the reason and when to come back."""

from dataclasses import dataclass

from shared.deadline import Deadline
from shared.errors import ProtocolError
from shared.messages import ResponseCreate
from shared.settings import Settings

_RETRY_AFTER_MS = 1_000


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    max_input_tokens: int
    max_inflight: int
    max_inflight_per_connection: int
    first_token_ms: int
    deadline_ms: int
    max_deadline_ms: int

    @classmethod
    def of(cls, settings: Settings) -> "AdmissionLimits":
        return cls(
            max_input_tokens=settings.limits.max_input_tokens,
            max_inflight=settings.gateway.max_inflight,
            max_inflight_per_connection=settings.gateway.max_inflight_per_connection,
            first_token_ms=settings.promise.first_token_ms,
            deadline_ms=settings.promise.deadline_ms,
            max_deadline_ms=settings.promise.max_deadline_ms,
        )


def check_inflight(limits: AdmissionLimits, *, inflight: int, of_connection: int, draining: bool) -> None:
    """Raises `ProtocolError` where one more unanswered request is one too many."""
    if draining:
        raise ProtocolError(
            "shutting_down",
            "this gateway is going away; reconnect",
            kind="overloaded_error",
            retriable=True,
            retry_after_ms=_RETRY_AFTER_MS,
        )
    if of_connection >= limits.max_inflight_per_connection:
        raise ProtocolError(
            "too_many_inflight",
            f"{of_connection} answers are in flight on this connection, "
            f"{limits.max_inflight_per_connection} are allowed; wait for one",
            kind="rate_limit_error",
            retriable=True,
        )
    if inflight >= limits.max_inflight:
        raise ProtocolError(
            "queue_full",
            f"{inflight} answers are in flight; try again",
            kind="overloaded_error",
            retriable=True,
            retry_after_ms=_RETRY_AFTER_MS,
        )


def check_length(limits: AdmissionLimits, num_tokens: int) -> None:
    """Raises `ProtocolError` where the input is too long."""
    if num_tokens > limits.max_input_tokens:
        raise ProtocolError(
            "input_too_long",
            f"the input has {num_tokens} tokens, {limits.max_input_tokens} are allowed; shorten it",
            param="input",
        )


def promise(request: ResponseCreate, limits: AdmissionLimits, now_unix_ms: float) -> Deadline:
    """The absolute deadline of a request received now. Raises `ProtocolError` for one beyond the longest allowed."""
    whole_ms = request.deadline_ms if request.deadline_ms is not None else limits.deadline_ms
    if whole_ms > limits.max_deadline_ms:
        raise ProtocolError(
            "invalid_field",
            f"deadline_ms={whole_ms} is above {limits.max_deadline_ms}; it is relative, in milliseconds",
            param="deadline_ms",
        )
    soft_ms = request.first_token_ms if request.first_token_ms is not None else limits.first_token_ms
    return Deadline.after(now_unix_ms, first_token_ms=soft_ms, whole_ms=whole_ms)
