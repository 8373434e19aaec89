"""Describe the sender of one request, and how long that client waits. Pure."""

import math
from dataclasses import dataclass
from typing import Final

# So long before its client gives up an answer is to be there.
_MARGIN_MS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """The sender of one request, beside its question. `address` is the client's, for charges, and `subject` a customer
    whom no token names; `origins` are the web pages it comes from; `deadline_ms` is None where the promise applies;
    `key` is the app's idempotency key."""

    address: str = ""
    origins: tuple[str, ...] = ()
    token: str | None = None
    subject: str = ""
    deadline_ms: int | None = None
    key: str | None = None
    is_retry: bool = False
    traceparent: str | None = None


def patience_ms(wait_ms: float, promised_ms: int) -> int | None:
    """Return the deadline of a client that waits for less than is promised; None where the promise stands."""
    left_ms = wait_ms - _MARGIN_MS
    return max(1, int(left_ms)) if math.isfinite(left_ms) and left_ms < promised_ms else None
