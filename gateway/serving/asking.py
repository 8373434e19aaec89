"""Take a question in: accept, count, decide, publish. Its client may cancel it."""

import asyncio
from dataclasses import dataclass, field
from functools import partial

from gateway.access.quotas import Quotas
from gateway.admission.control import AdmissionLimits, check_connection, check_length, promise
from gateway.kafka.request_publisher import RequestPublisher
from gateway.people.people import People
from gateway.request.cursor import response_id
from gateway.request.entry import Entry
from gateway.request.inflight import InflightTable
from gateway.request.request import Request
from gateway.request.resumption import learn_question, reattach
from gateway.serving.admission_gate import AdmissionGate
from gateway.serving.answering import Answering
from gateway.serving.deadlines import Deadlines
from gateway.serving.erasing import Erasing
from gateway.serving.placing import Placing
from gateway.serving.routing import Routing
from gateway.serving.shadowing import Shadowing
from gateway.session.connection import Connection, put_all, refuse
from gateway.session.connections import Connections
from gateway.session.keyed_locks import KeyedLocks
from gateway.session.protocol import CancelRequest, Session
from gateway.telemetry.tracer import Tracer
from shared.errors import BrokerUnavailable, ProtocolError
from shared.model.tokenizer import Tokenizer
from shared.process.clock import correction_ms, now_unix_ms, wire_unix_ms
from shared.telemetry import metrics
from shared.telemetry.logs import get_logger
from shared.wire.messages import ResponseCreate
from shared.wire.topics import bucket_of_length, surely_short

log = get_logger()


@dataclass(slots=True, kw_only=True)
class Asking:
    """The way of a question to Kafka. Each waits (counting tokens, Kafka's acknowledgement, Redis) in a task of its
    own."""

    limits: AdmissionLimits
    tokenizer: Tokenizer
    inflight: InflightTable
    connections: Connections
    publisher: RequestPublisher
    admission_gate: AdmissionGate
    routing: Routing
    quotas: Quotas
    people: People
    tracer: Tracer
    answering: Answering
    erasing: Erasing
    deadlines: Deadlines
    shadowing: Shadowing
    placing: Placing
    _locks: KeyedLocks = field(default_factory=KeyedLocks, init=False)

    async def ask(self, connection: Connection, asked: ResponseCreate) -> None:
        """Accept a question, or attach the client to the answer that it has already. Raises `ProtocolError` where it is
        refused."""
        session, now = connection.session, now_unix_ms()
        generation, sure = await self.erasing.generation_of(session)
        known = self.inflight.find(session.key, asked.event_id)
        if known is not None:
            if self.connections.is_elsewhere(connection, known):
                check_connection(self.limits, connection.num_inflight)
            self.connections.attach(connection, known)
            learn_question(known, asked.input)
            put_all(connection, reattach(known, session.connection_id))
            self.deadlines.watch(known)
            return
        self.admission_gate.check_room(self.limits, inflight=len(self.inflight), of_connection=connection.num_inflight)
        request = Request(
            response_id=response_id(session.key, asked.event_id, asked.input, generation),
            event_id=asked.event_id,
            session=session.key,
            input=asked.input,
            received_unix_ms=now,
            deadline=promise(asked, self.limits, now),
            clock_ms=correction_ms(),
            generation=generation if sure else max(generation, int(wire_unix_ms()) - 1),
            generation_known=sure,
            consent=session.consent,
            log=self.publisher.log_place(),
            trace=self.tracer.start(asked.traceparent),
        )
        entry = Entry(request=request, connection_id=session.connection_id)
        self.connections.count_in(connection)
        with self.inflight.refused_on_error(entry):
            self.inflight.accept(entry)
            self.deadlines.watch(entry)
            self.answering.run_for(entry, self._admit(entry, asked, session))
        metrics.inflight.set(len(self.inflight))

    async def _admit(self, entry: Entry, asked: ResponseCreate, session: Session) -> None:
        """Count, decide, publish, a session's questions one after the other. The deadline's timer runs meanwhile."""
        try:
            async with self._locks.hold(entry.request.session):
                delivery = await self._send(entry, asked, session)
            if delivery is None:
                return
            entry.publication.place = await self.publisher.await_delivery(entry, delivery)
        except (BrokerUnavailable, ProtocolError) as error:
            log.warning("publish_failed", request_id=entry.response_id, cause=str(error))
            self.admission_gate.withdraw(entry)
            if entry.answer.response is None:
                self.answering.fall_back(entry, "broker")
            return
        if entry.answer.response is not None:
            if not entry.publication.published:  # cancelled or answered by the FAQ meanwhile: the worker need not start
                await self.publisher.cancel(entry)
            return
        self.answering.deliver(entry, entry.acknowledge())

    async def _send(self, entry: Entry, asked: ResponseCreate, session: Session) -> "asyncio.Future[object] | None":
        """Send a request; return its delivery to Kafka, None where the workers do not get it. Raises
        `BrokerUnavailable`, `ProtocolError` where Kafka refuses it."""
        if entry.answer.response is not None:  # while it stood in line
            return None
        try:
            await self.quotas.charge_shared("ask", session.caller)
            num_tokens = await self._count(entry.input)
            check_length(self.limits, num_tokens)
            stand_in = await self.people.answer_wish(entry, self.connections.of(entry), session.caller, asked.turns)
        except ProtocolError as error:
            self._refuse(entry, error)
            return None
        if entry.answer.done:
            return None
        entry.admit(bucket_of_length(num_tokens), now_unix_ms())
        publication = entry.publication
        publication.route = self.routing.choose(entry.request.session, publication.bucket)
        metrics.accepted.labels(entry.publication.bucket).inc()
        if stand_in is not None:
            self.answering.answer_with(entry, stand_in)
            return None
        if not await self._place(entry):
            return None
        publication.asked = asked
        self.shadowing.keep(entry, asked)
        self.routing.count_request(publication.route)
        return await self.publisher.enqueue(entry, asked)

    async def _place(self, entry: Entry) -> bool:
        """Choose a request's partition and lane; return whether the workers get it."""
        publication = entry.publication
        self.routing.count_asked(publication.route.lane, publication.bucket)
        if not await self.placing.place(entry):
            return False
        publication.concurrent = tuple(name for name in publication.concurrent if not self.inflight.has_ended(name))
        partition_of = partial(self.publisher.partition_of, entry)
        lane, light = self.admission_gate.place(entry, partition_of, self.routing.state.rung, now_unix_ms())
        self.routing.count_placed(publication, lane if light is None else None)
        if light is not None:
            self.answering.fall_back(entry, light)
            return False
        publication.route, publication.partition = self.routing.through(lane), partition_of(lane)
        return True

    def _refuse(self, entry: Entry, error: ProtocolError) -> None:
        """Refuse a request that was never accepted after all."""
        if entry.answer.done:
            return
        self.connections.count_out(entry)
        self.inflight.refuse(entry)
        metrics.inflight.set(len(self.inflight))
        connection = self.connections.of(entry)
        if connection is not None:
            refuse(connection, error, entry.request.event_id)
            connection.flush()

    async def _count(self, text: str) -> int:
        """Return the input's tokens, counted off the loop; 0 where its bytes already show that it is short."""
        if surely_short(text):
            return 0
        return await asyncio.to_thread(self.tokenizer.count, text)

    def cancel(self, connection: Connection, cancel: CancelRequest) -> None:
        """Cancel a request. An answer that has ended stays as it is; for an unknown one the client gets an error."""
        session = connection.session
        entry = self.inflight.named(session.key, cancel.response_id, cancel.event_id)
        if entry is None:
            name = cancel.response_id or cancel.event_id
            error = ProtocolError("unknown_response", f"no answer {name!r} is in flight in this session")
            refuse(connection, error, cancel.event_id)
        elif not entry.answer.done:
            self.answering.cancel(entry)
