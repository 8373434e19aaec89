"""Erasing a conversation wherever it is kept, but for what Kafka holds until its time has passed."""

from gateway.connection import Connection, refuse
from gateway.request_publisher import RequestPublisher
from shared.errors import BrokerUnavailable, ProtocolError, StoreUnavailable
from shared.history import History
from shared.messages import SessionDeleted


async def erase(connection: Connection, history: History, publisher: RequestPublisher, *, asked_unix_ms: float) -> None:
    """In Redis, and what the workers hold in memory: what was said until it was asked for. The client is told."""
    session = connection.session
    try:
        await history.delete(session.tenant, session.conversation_id, asked_unix_ms=asked_unix_ms)
        await publisher.erase(session.tenant, session.conversation_id)
    except (StoreUnavailable, BrokerUnavailable):
        refuse(connection, _not_now())
    except ProtocolError as error:
        refuse(connection, error)
    else:
        connection.put(SessionDeleted(session_id=session.session_id))
    connection.flush()


def _not_now() -> ProtocolError:
    return ProtocolError(
        "history_unavailable",
        "the history cannot be erased now; try again",
        kind="server_error",
        retriable=True,
        retry_after_ms=1_000,
    )
