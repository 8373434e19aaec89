"""Bring answers to their clients and end them: show what is new, settle the books, tell the log and the worker."""

from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gateway.kafka.request_publisher import RequestPublisher
from gateway.people.people import People
from gateway.request.entry import Entry, Item
from gateway.request.inflight import InflightTable
from gateway.serving.admission_gate import AdmissionGate
from gateway.session.connection import put_all, refuse, send_away, write
from gateway.session.connections import Connections
from gateway.session.resumption import Resumption
from gateway.telemetry.answer_metrics import count_answer
from gateway.telemetry.tracer import Tracer
from shared.errors import ProtocolError
from shared.process.clock import now_unix_ms
from shared.process.tasks import Tasks
from shared.telemetry import metrics
from shared.telemetry.faults import contain_each, contained
from shared.wire.failed_ends import OWN_FAULT


@dataclass(slots=True, kw_only=True)
class Answering:
    """Owned by the gateway's event loop."""

    inflight: InflightTable
    connections: Connections
    publisher: RequestPublisher
    admission_gate: AdmissionGate
    resumption: Resumption
    people: People
    tracer: Tracer
    beside: Tasks

    def show(self, entry: Entry, items: Iterable[Item]) -> None:
        """Hand items to the client, and settle the books when the answer has ended. Raises nothing: an end that has
        happened is told to a client that comes back, if it cannot be told to this one."""
        with contained("answer", request_id=entry.response_id) as telling:
            if (connection := self.connections.of(entry)) is not None:
                put_all(connection, items)
                write(connection)
            if entry.done:
                self.connections.count_out(entry)
        if telling.error is not None:
            self._send_away(entry)
        if entry.done:
            self._settle(entry)

    def _settle(self, entry: Entry) -> None:
        """Each book by itself."""
        response = entry.response
        assert response is not None
        entry.settled = True
        contain_each(
            "answer",
            lambda: self.admission_gate.ended(entry),
            lambda: self.resumption.let_go(entry),
            lambda: count_answer(entry, response),
            lambda: self.people.ended(entry, response, self.connections.of(entry)),
            lambda: self.tracer.ended(entry, response),
            request_id=entry.response_id,
        )
        metrics.inflight.set(len(self.inflight))

    def end(self, entry: Entry, items: Iterable[Item]) -> None:
        """End an answer by this gateway itself: its client hears of it, and so does the log."""
        self.show(entry, items)
        with contained("answer", request_id=entry.response_id):
            if entry.fallback != "broker":
                self.beside.start(self.publisher.ended(entry))

    def refuse(self, entry: Entry, error: ProtocolError) -> None:
        """Refuse a request that was never accepted after all."""
        if entry.done:
            return
        self.connections.count_out(entry)
        self.inflight.refuse(entry)
        metrics.inflight.set(len(self.inflight))
        connection = self.connections.of(entry)
        if connection is not None:
            refuse(connection, error, entry.event_id)
            connection.flush()

    def fail(self, entry: Entry | None, *, torn: bool = False) -> None:
        """After a fault of our own in an answer: it ends as failed, and no other is touched. One that cannot even do
        that is forgotten, and its client asks anew. `torn`: something of it may have been lost on the way to its
        client, which is sent away, and told it when it comes back; so is an end that nobody has been told."""
        if entry is None or entry.settled:
            return
        if torn or entry.done:
            self._send_away(entry)
        if entry.done:
            if entry.response is not None:
                self.show(entry, ())
            return
        with contained("answer", request_id=entry.response_id) as ending:
            self.end(entry, self.inflight.fail(entry, OWN_FAULT, now_unix_ms()))
            self.spare_worker(entry)
        if ending.error is not None and not entry.done:
            self._send_away(entry)
            self.inflight.refuse(entry)

    @contextmanager
    def beginning(self, entry: Entry) -> Iterator[None]:
        """Forget an answer that a fault keeps from being begun: its client is sent away, and asks anew."""
        try:
            yield
        except Exception:
            self.inflight.refuse(entry)
            raise

    async def for_one(self, entry: Entry, work: Coroutine[object, object, None]) -> None:
        """Run what is done beside for one answer; a fault in it ends that one."""
        opened = entry.created
        with contained("answer", request_id=entry.response_id) as working:
            await work
        if working.error is not None:
            self.fail(entry, torn=entry.created and not opened)

    def cancel(self, entry: Entry) -> None:
        """Cancel an answer that nobody wants any more."""
        self.end(entry, self.inflight.cancel(entry, now_unix_ms()))
        self.spare_worker(entry)

    def spare_worker(self, entry: Entry) -> None:
        """Tell the worker that an answer has ended here and need not be written on."""
        if entry.done and entry.published:
            self.beside.start(self.publisher.cancel(entry))

    def _send_away(self, entry: Entry) -> None:
        with contained("connection", request_id=entry.response_id):
            if (connection := self.connections.of(entry)) is not None:
                send_away(connection)
