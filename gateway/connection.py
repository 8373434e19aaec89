"""A client as the gateway sees it, whichever front end it came by."""

from collections.abc import Iterable
from typing import Protocol

from gateway.cursor import Seal, Told
from gateway.entry import Item
from gateway.session import Session
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

    def close(self, code: int, reason: str) -> None: ...
