"""Keep the open connections, and count the answers that each waits for."""

from gateway.request.entry import Entry
from gateway.session.connection import Connection, send_away
from shared.telemetry import metrics
from shared.telemetry.faults import contained


class Connections:
    """Owned by the gateway's event loop. Each connection's `num_inflight` is counted here."""

    def __init__(self) -> None:
        self._open: dict[str, Connection] = {}

    def add(self, connection: Connection) -> None:
        self._open[connection.session.connection_id] = connection
        metrics.connections.set(len(self._open))

    def remove(self, connection: Connection) -> bool:
        """Remove a connection; return whether it was known."""
        known = self._open.pop(connection.session.connection_id, None) is not None
        metrics.connections.set(len(self._open))
        return known

    def of(self, entry: Entry) -> Connection | None:
        """Return the connection that an answer is shown on; None after that was lost."""
        return self._open.get(entry.connection_id) if entry.connection_id is not None else None

    @staticmethod
    def count_in(connection: Connection) -> None:
        """Count one more answer that the connection waits for."""
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
        """Return whether the answer is open, and not this connection's."""
        return not entry.answer.done and entry.connection_id != connection.session.connection_id

    def count_out(self, entry: Entry) -> None:
        """Count one answer less that its connection waits for."""
        connection = self.of(entry)
        if connection is not None:
            connection.num_inflight -= 1

    def send_away(self, entry: Entry) -> None:
        """Close the connection that an answer is shown on: its client returns, and resumes. Raises nothing."""
        with contained("connection", request_id=entry.response_id):
            if (connection := self.of(entry)) is not None:
                send_away(connection)
