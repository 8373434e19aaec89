"""A client as the gateway sees it, whichever front end it came by."""

from collections.abc import Iterable
from typing import Protocol

from gateway.cursor import Seal, Told
from gateway.entry import Item
from gateway.session import CloseCode, Session, error_event
from shared import metrics
from shared.errors import ProtocolError
from shared.messages import ServerMessage


class Connection(Protocol):
    """Never blocks: `put` queues, `flush` writes what the socket takes. A closed connection swallows both."""

    session: Session
    num_inflight: int

    def begin(self, seal: Seal, told: Iterable[Told]) -> None:
        """Before the first answer is put: the session's seal, and the answers that its client comes back with."""

    def put(self, item: ServerMessage | Item) -> None: ...

    def flush(self) -> None:
        """Write what waits, in one write, unless the client is slow; then it waits and deltas merge."""

    def close(self, code: CloseCode, reason: str) -> None: ...


def put_all(connection: Connection, items: Iterable[Item]) -> None:
    for item in items:
        connection.put(item)


def refuse(connection: Connection, error: ProtocolError, event_id: str | None = None) -> None:
    """Tell a client what was wrong, and count it."""
    metrics.refused.labels(error.code).inc()
    connection.put(error_event(error, event_id))
