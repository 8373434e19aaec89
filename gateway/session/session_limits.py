"""The limits that a session announces to its client and enforces (length of a question, deadlines, open questions),
taken from the settings. Pure."""

from dataclasses import dataclass

from shared.settings import Settings
from shared.wire.messages import Limits


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Limits of one session. `heartbeat_ms` 0 disables pings. `tenants` are patterns of the tenants allowed."""

    hello_timeout_ms: float
    heartbeat_ms: float
    messages_per_minute: int
    announced: Limits
    handoff: bool = False
    tenants: tuple[str, ...] = ("*",)


def session_limits(settings: Settings) -> SessionLimits:
    """Return the limits of a session, including those announced to the client."""
    gateway = settings.gateway
    return SessionLimits(
        hello_timeout_ms=gateway.hello_timeout_s * 1_000,
        heartbeat_ms=gateway.heartbeat_s * 1_000,
        messages_per_minute=gateway.messages_per_minute,
        handoff=settings.handoff.enabled,
        tenants=settings.kafka.tenants,
        announced=Limits(
            max_message_bytes=gateway.max_message_bytes,
            max_input_tokens=settings.limits.max_input_tokens,
            max_output_tokens=settings.limits.max_output_tokens,
            max_inflight=gateway.max_inflight_per_connection,
            messages_per_minute=gateway.messages_per_minute,
            first_token_ms=settings.promise.first_token_ms,
            deadline_ms=settings.promise.deadline_ms,
        ),
    )
