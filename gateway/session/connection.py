"""The interface by which the gateway writes to a client. The WebSocket, HTTP and gRPC front ends implement it."""

from collections.abc import Coroutine, Iterable
from typing import Protocol

from gateway.request.cursor import ResumePoint, Seal
from gateway.request.entry import Item
from gateway.session.effects import CloseCode
from gateway.session.protocol import Session, error_event
from shared.errors import ProtocolError
from shared.process.clock import now_unix_ms
from shared.process.tasks import Tasks
from shared.telemetry import metrics
from shared.telemetry.faults import contained
from shared.wire.messages import ServerMessage


class Connection(Protocol):
    """A client's connection. No method blocks: `put` queues, and `flush` writes as much as the socket accepts. Both do
    nothing on a closed connection."""

    session: Session
    num_inflight: int

    def start_session(self, seal: Seal, points: Iterable[ResumePoint], now_unix_ms: float) -> None:
        """Start the session before the first answer is put. `points` are the answers that the client resumes, `seal`
        signs its cursors."""

    def put(self, item: ServerMessage | Item) -> None: ...

    def drop_answer(self, response_id: str) -> None:
        """Drop an answer that was moved to another connection, along with its queued messages."""

    def flush(self) -> None:
        """Write all queued messages in one write. While the client is slow, keep them queued and merge deltas."""

    def close(self, code: CloseCode, reason: str) -> None: ...


def put_all(connection: Connection, items: Iterable[Item]) -> None:
    """Queue items for the client. Never raises: after an internal fault the client is disconnected."""
    with contained("connection", connection=connection.session.connection_id) as putting:
        for item in items:
            connection.put(item)
    if putting.error is not None:
        send_away(connection)


def write(connection: Connection) -> None:
    """Flush the connection. Never raises: after an internal fault the client is disconnected."""
    with contained("connection", connection=connection.session.connection_id) as writing:
        connection.flush()
    if writing.error is not None:
        send_away(connection)


def start_reply(tasks: Tasks, connection: Connection, work: Coroutine[object, object, None]) -> None:
    """Start work that may write to the connection. The session counts it until it has ended."""
    session = connection.session
    session.num_replies_due += 1

    def ended(_: object) -> None:
        session.num_replies_due -= 1
        write(connection)

    tasks.start(work).add_done_callback(ended)


def send_away(connection: Connection) -> None:
    """Disconnect a client with a close code on which it reconnects and resumes."""
    connection.close(CloseCode.INTERNAL, "internal error")


def reject(connection: Connection, error: ProtocolError, event_id: str | None = None) -> None:
    """Send the client an error and close its session, which cannot be opened."""
    refuse(connection, error, event_id)
    close = connection.session.reject(error)
    connection.close(close.code, close.reason)


def refuse(connection: Connection, error: ProtocolError, event_id: str | None = None) -> None:
    """Send the client an error and count it. Close a connection that has received too many."""
    metrics.refused.labels(error.code).inc()
    connection.put(error_event(error, event_id))
    if (end := connection.session.refuse(now_unix_ms())) is not None:
        connection.close(end.code, end.reason)
