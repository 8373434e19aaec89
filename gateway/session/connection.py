"""The interface by which the gateway writes to a client, and the set of open connections. The WebSocket, HTTP and gRPC
front ends implement the interface."""

from collections.abc import Coroutine, Iterable
from typing import Protocol

from gateway.request.cursor import ResumePoint, Seal
from gateway.request.entry import Entry, Item
from gateway.session.effects import CloseCode
from gateway.session.protocol import Session, error_event
from shared.errors import ProtocolError
from shared.process.clock import now_unix_ms
from shared.process.tasks import Tasks
from shared.telemetry import metrics
from shared.telemetry.faults import contained
from shared.wire.messages import ServerMessage
from shared.wire.session_key import SessionKey


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


def write(connection: Connection, items: Iterable[ServerMessage | Item] = ()) -> None:
    """Queue items for the client and flush. Never raises: after an internal fault the client is disconnected."""
    with contained("connection", connection=connection.session.connection_id) as writing:
        for item in items:
            connection.put(item)
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


class Connections:
    """The open client connections of this gateway, owned by its event loop. Maintains `num_inflight`, the number of
    unanswered questions, of each."""

    def __init__(self) -> None:
        self._open: dict[str, Connection] = {}
        self._of_session: dict[SessionKey, tuple[Connection, ...]] = {}

    def add(self, connection: Connection) -> None:
        self._open[connection.session.connection_id] = connection
        metrics.connections.set(len(self._open))

    def remove(self, connection: Connection) -> bool:
        """Remove a connection; return whether it was open."""
        known = self._open.pop(connection.session.connection_id, None) is not None
        if connection.session.talk is not None:
            self._leave_session(connection)
        metrics.connections.set(len(self._open))
        return known

    def _leave_session(self, connection: Connection) -> None:
        key = connection.session.key
        others = tuple(each for each in self._of_session.get(key, ()) if each is not connection)
        if others:
            self._of_session[key] = others
        else:
            self._of_session.pop(key, None)

    def join_session(self, connection: Connection) -> None:
        """Note the session of a client that shows a person's messages."""
        key = connection.session.key
        self._of_session[key] = (*self._of_session.get(key, ()), connection)

    def sessions(self) -> list[SessionKey]:
        """Return the sessions whose clients show a person's messages."""
        return list(self._of_session)

    def of_session(self, session: SessionKey) -> tuple[Connection, ...]:
        """Return the connections of a session whose clients show a person's messages."""
        return self._of_session.get(session, ())

    def of(self, entry: Entry) -> Connection | None:
        """Return the connection that shows an answer; None if it was lost."""
        return self._open.get(entry.connection_id) if entry.connection_id is not None else None

    @staticmethod
    def count_in(connection: Connection) -> None:
        """Count one more open answer of the connection."""
        connection.num_inflight += 1

    def attach(self, connection: Connection, entry: Entry) -> None:
        """Move an open answer to this connection."""
        if self.is_elsewhere(connection, entry):
            former = self.of(entry)
            if former is not None:
                self.count_out(entry)
                former.drop_answer(entry.response_id)
            self.count_in(connection)

    @staticmethod
    def is_elsewhere(connection: Connection, entry: Entry) -> bool:
        """Return whether the answer is open and shown on another connection."""
        return not entry.answer.done and entry.connection_id != connection.session.connection_id

    def count_out(self, entry: Entry) -> None:
        """Count one open answer less on the connection that shows it."""
        connection = self.of(entry)
        if connection is not None:
            connection.num_inflight -= 1

    def send_away(self, entry: Entry) -> None:
        """Close the connection that shows an answer, so that its client reconnects and resumes. Never raises."""
        with contained("connection", request_id=entry.response_id):
            if (connection := self.of(entry)) is not None:
                send_away(connection)
