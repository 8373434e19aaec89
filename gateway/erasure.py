"""Erasing a conversation wherever it is kept, but for what Kafka holds until its time has passed."""

from gateway.request_publisher import RequestPublisher
from shared.errors import BrokerUnavailable, ProtocolError, StoreUnavailable
from shared.history import History


async def erase(history: History, publisher: RequestPublisher, tenant: str, session_id: str) -> None:
    """In Redis, and what the workers hold in memory. Raises `ProtocolError` where it cannot be done now."""
    try:
        await history.delete(tenant, session_id)
        await publisher.erase(tenant, session_id)
    except (StoreUnavailable, BrokerUnavailable):
        raise ProtocolError(
            "history_unavailable",
            "the history cannot be erased now; try again",
            kind="server_error",
            retriable=True,
            retry_after_ms=1_000,
        ) from None
