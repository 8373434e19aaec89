"""Read a call's metadata, and encode an error as a status and trailing metadata. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import unquote

from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc import StatusCode

from gateway.exchange.question import Asker, patience_ms
from gateway.frontends.client_address import client_address
from gateway.http.headers import bearer, idempotency_key, traceparent
from shared.errors import ErrorKind
from shared.sockets.open_sockets import Network
from shared.wire.outcome import ErrorDetail

Metadata = Sequence[tuple[str, str | bytes]]
# Set by gRPC when a client retries by itself.
_ATTEMPTS: Final = "grpc-previous-rpc-attempts"


def asker_of(
    peer: str, metadata: Metadata, remaining_s: float | None, *, trusted: Sequence[Network], promised_ms: int
) -> Asker:
    """Return the sender of a call.

    Args:
        peer: gRPC's name of the client's address, such as `ipv6:%5B::1%5D:5000`
        metadata: the call's metadata
        remaining_s: time left until the call's deadline; None without a deadline
        trusted: networks of trusted proxies
        promised_ms: the promised time for an answer
    """
    texts = {name: value for name, value in metadata if isinstance(value, str)}
    forwarded = [value for name, value in metadata if name == "x-forwarded-for" and isinstance(value, str)]
    address = client_address(unquote(peer.partition(":")[2]), forwarded, trusted)
    return Asker(
        address=address.charged,
        own_address=address.own,
        token=bearer(texts),
        deadline_ms=None if remaining_s is None else patience_ms(remaining_s * 1_000, promised_ms),
        key=idempotency_key(texts),
        is_retry=_ATTEMPTS in texts,
        traceparent=traceparent(texts),
    )


_BY_KIND: Final[Mapping[ErrorKind, StatusCode]] = {
    "invalid_request_error": StatusCode.INVALID_ARGUMENT,
    "authentication_error": StatusCode.UNAUTHENTICATED,
    "rate_limit_error": StatusCode.RESOURCE_EXHAUSTED,
    "overloaded_error": StatusCode.UNAVAILABLE,
    "server_error": StatusCode.INTERNAL,
}
_BY_CODE: Final = {
    "cancelled": StatusCode.CANCELLED,
    "instructions_not_allowed": StatusCode.PERMISSION_DENIED,
    "key_reused": StatusCode.ABORTED,
    "nobody_in_time": StatusCode.DEADLINE_EXCEEDED,
    "response_not_found": StatusCode.NOT_FOUND,
    "retried": StatusCode.ABORTED,
    "too_many_connections": StatusCode.RESOURCE_EXHAUSTED,
    "too_many_inflight": StatusCode.RESOURCE_EXHAUSTED,
}
_RETRY_AFTER_MS: Final = 1_000

Trailers = tuple[tuple[str, str | bytes], ...]


def status_of(error: ErrorDetail) -> StatusCode:
    status = _BY_CODE.get(error.code) or _BY_KIND[error.type]
    return StatusCode.UNAVAILABLE if status is StatusCode.INTERNAL and error.retryable else status


def trailers_of(error: ErrorDetail) -> Trailers:
    """Return the trailing metadata: google.rpc.Status, and gRPC's retry delay; a negative delay means no retry."""
    wait_ms = (error.retry_after_ms or _RETRY_AFTER_MS) if error.retryable else -1
    status = Status(code=status_of(error).value[0], message=error.message)
    about = {"type": error.type, **({"param": error.param} if error.param else {})}
    status.details.add().Pack(ErrorInfo(reason=error.code.upper(), domain="replyline", metadata=about))
    if error.retryable:
        retry_delay = Duration(seconds=wait_ms // 1_000, nanos=wait_ms % 1_000 * 1_000_000)
        status.details.add().Pack(RetryInfo(retry_delay=retry_delay))
    return (
        ("grpc-retry-pushback-ms", str(wait_ms)),
        ("grpc-status-details-bin", status.SerializeToString()),
    )
