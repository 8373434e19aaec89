"""A client as the gateway sees it, whichever front end it came by."""

from typing import Protocol

from gateway.outbox import Shown
from gateway.session import Session
from shared.messages import ServerMessage


class Connection(Protocol):
    """Never blocks: `put` queues, `flush` writes what the socket takes. A closed connection swallows both."""

    session: Session
    tenant: str
    num_inflight: int

    def put(self, item: ServerMessage | Shown) -> None: ...

    def flush(self) -> None:
        """Write what waits, in one write, unless the client is slow; then it waits and deltas merge."""

    def close(self, code: int, reason: str) -> None: ...
