"""Read an HTTP request's headers. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

from gateway.exchange.question import patience_ms
from shared.wire.fields import readable_trace

_TIMEOUTS: Final = ("x-stainless-read-timeout", "x-stainless-timeout")

Headers = Mapping[str, str]


def bearer(headers: Headers) -> str | None:
    """Return the token of the `Authorization` header; None if there is no token."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def deadline_ms(headers: Headers, promised_ms: int) -> int | None:
    """Return the deadline of a client that waits for less time than promised; None if the promise applies."""
    for name in _TIMEOUTS:
        try:
            deadline = patience_ms(float(headers[name]) * 1_000, promised_ms)
        except (KeyError, ValueError):
            continue
        if deadline is not None:
            return deadline
    return None


def notices(ignored: Iterable[str]) -> dict[str, str]:
    """Return a header with the names of requested options that are not supported; empty if all are supported."""
    names = ", ".join(ignored)
    return {"replyline-ignored": names} if names else {}


def idempotency_key(headers: Headers) -> str | None:
    return headers.get("idempotency-key") or None


def is_retry(headers: Headers) -> bool:
    """Return whether the client marks the request as a retry."""
    return headers.get("x-stainless-retry-count", "0") not in {"", "0"}


def traceparent(headers: Headers) -> str | None:
    """Return the caller's trace context; None if it is missing or malformed."""
    return readable_trace(headers.get("traceparent", ""))
