"""How answers reach their clients and end: what is new is shown, the books are settled, the log and the worker told."""

from collections.abc import Iterable
from dataclasses import dataclass

from gateway.background import Background
from gateway.books import count_answer
from gateway.care import Care
from gateway.connection import put_all
from gateway.connections import Connections
from gateway.entry import Entry, Item
from gateway.gatekeeper import Gatekeeper
from gateway.inflight import InflightTable
from gateway.request_publisher import RequestPublisher
from gateway.resumption import Resumption
from gateway.tracer import Tracer
from shared import metrics
from shared.clock import now_unix_ms


@dataclass(slots=True, kw_only=True)
class Endings:
    """Owned by the gateway's event loop."""

    inflight: InflightTable
    connections: Connections
    publisher: RequestPublisher
    gatekeeper: Gatekeeper
    resumption: Resumption
    care: Care
    tracer: Tracer
    beside: Background

    def show(self, entry: Entry, items: Iterable[Item]) -> None:
        """Hand items to the client, and settle the books when the answer has ended."""
        connection = self.connections.of(entry)
        if connection is not None:
            put_all(connection, items)
            connection.flush()
        if entry.done:
            self.connections.count_out(entry)
            self._settle(entry)

    def _settle(self, entry: Entry) -> None:
        response = entry.response
        assert response is not None
        self.gatekeeper.ended(entry, response)
        if entry.adopted and entry.log is not None:
            self.resumption.let_go(entry)
        metrics.inflight.set(len(self.inflight))
        count_answer(entry, response)
        self.care.ended(entry, response, self.connections.of(entry))
        self.tracer.ended(entry, response)

    def end(self, entry: Entry, items: Iterable[Item]) -> None:
        """This gateway ends an answer itself: its client hears of it, and so does the log."""
        self.show(entry, items)
        if entry.fallback != "broker":
            self.beside.start(self.publisher.ended(entry))

    def cancel(self, entry: Entry) -> None:
        """Nobody wants it any more."""
        self.end(entry, self.inflight.cancel(entry, now_unix_ms()))
        self.spare_worker(entry)

    def spare_worker(self, entry: Entry) -> None:
        """What has ended here need not be written on."""
        if entry.done and entry.published:
            self.beside.start(self.publisher.cancel(entry))
