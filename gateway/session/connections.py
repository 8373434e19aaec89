"""The set of open client connections of this gateway, with the number of unanswered questions of each."""

from gateway.request.entry import Entry
from gateway.session.connection import Connection, send_away
from shared.telemetry import metrics
from shared.telemetry.faults import contained


class Connections:
    """Owned by the gateway's event loop. Maintains `num_inflight` of each connection."""

    def __init__(self) -> None:
        self._open: dict[str, Connection] = {}

    def add(self, connection: Connection) -> None:
        self._open[connection.session.connection_id] = connection
        metrics.connections.set(len(self._open))

    def remove(self, connection: Connection) -> bool:
        """Remove a connection; return whether it was open."""
        known = self._open.pop(connection.session.connection_id, None) is not None
        metrics.connections.set(len(self._open))
        return known

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
