"""Who sends one request, and how long that client waits: pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Hold what a request says beside its question. `address` is the client's, as it is charged; `origins` are the web
    pages it comes from; `deadline_ms` is None where the promise stands; `key` is the app's idempotency key."""

    address: str = ""
    origins: tuple[str, ...] = ()
    token: str | None = None
    deadline_ms: int | None = None
    key: str | None = None
    is_retry: bool = False
    traceparent: str | None = None
