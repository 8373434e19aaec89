"""A connection's messages a minute: a token bucket, a minute's worth deep. Pure."""

from dataclasses import dataclass, field

from shared.errors import ProtocolError

_MINUTE_MS = 60_000


@dataclass(slots=True)
class MessageRate:
    """`updated_unix_ms` is the time up to which `allowance`, in messages, is refilled."""

    per_minute: int
    updated_unix_ms: float
    allowance: float = field(init=False)

    def __post_init__(self) -> None:
        self.allowance = float(self.per_minute)

    def spend(self, now_unix_ms: float) -> None:
        """Count one message. Raises `ProtocolError` with the time to wait where it is one too many."""
        per_ms = self.per_minute / _MINUTE_MS
        elapsed_ms = max(0.0, now_unix_ms - self.updated_unix_ms)
        self.allowance = min(self.per_minute, self.allowance + elapsed_ms * per_ms)
        self.updated_unix_ms = now_unix_ms  # a clock set back refills nothing, and is gone by from then on
        if self.allowance < 1:
            wait_ms = int((1 - self.allowance) / per_ms) + 1
            raise ProtocolError(
                "rate_limited",
                f"more than {self.per_minute} messages a minute; wait {wait_ms} ms",
                kind="rate_limit_error",
                retriable=True,
                retry_after_ms=wait_ms,
            )
        self.allowance -= 1

    def passes(self, now_unix_ms: float) -> bool:
        """Count one message; return whether it is not one too many."""
        try:
            self.spend(now_unix_ms)
        except ProtocolError:
            return False
        return True
