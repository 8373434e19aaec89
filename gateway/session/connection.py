"""Define a client's connection as the gateway uses it, the same for every front end."""

from collections.abc import Iterable
from typing import Protocol

from gateway.request.cursor import ResumePoint, Seal
from gateway.request.entry import Item
from gateway.session.effects import CloseCode
from gateway.session.protocol import Session, error_event
from shared.errors import ProtocolError
from shared.process.clock import now_unix_ms
from shared.telemetry import metrics
from shared.telemetry.faults import contained
from shared.wire.messages import ServerMessage


class Connection(Protocol):
    """A client's connection. It never blocks: `put` queues, `flush` writes what the socket takes. A closed connection
    ignores both."""

    session: Session
    num_inflight: int

    def start_session(self, seal: Seal, points: Iterable[ResumePoint], now_unix_ms: float) -> None:
        """Start the session, before the first answer is put: its seal, and the answers that its client returns with."""

    def put(self, item: ServerMessage | Item) -> None: ...

    def drop_answer(self, response_id: str) -> None:
        """Drop an answer that another connection has taken over, with what waits of it here."""

    def flush(self) -> None:
        """Write what waits, in one write, unless the client is slow; then it waits and deltas merge."""

    def close(self, code: CloseCode, reason: str) -> None: ...


def put_all(connection: Connection, items: Iterable[Item]) -> None:
    """Put items into the outbox. Raises nothing: after a fault of our own the client is sent away."""
    with contained("connection", connection=connection.session.connection_id) as putting:
        for item in items:
            connection.put(item)
    if putting.error is not None:
        send_away(connection)


def write(connection: Connection) -> None:
    """`flush`, raising nothing, like `put_all`."""
    with contained("connection", connection=connection.session.connection_id) as writing:
        connection.flush()
    if writing.error is not None:
        send_away(connection)


def send_away(connection: Connection) -> None:
    """Close a connection whose client is to return and resume."""
    connection.close(CloseCode.INTERNAL, "internal error")


def reject(connection: Connection, error: ProtocolError, event_id: str | None = None) -> None:
    """Send a client an error, and close its session: it cannot be opened."""
    refuse(connection, error, event_id)
    close = connection.session.reject(error)
    connection.close(close.code, close.reason)


def refuse(connection: Connection, error: ProtocolError, event_id: str | None = None) -> None:
    """Send a client an error, and count it; close a connection that has had too many."""
    metrics.refused.labels(error.code).inc()
    connection.put(error_event(error, event_id))
    if (end := connection.session.refuse(now_unix_ms())) is not None:
        connection.close(end.code, end.reason)
