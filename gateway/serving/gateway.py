"""The gateway's heart, and the only file that touches every step of a request at the edge.

    session → inflight → admission_gate (admission) → request_publisher ⇒ Kafka
    Kafka ⇒ reply_consumer → inflight → outbox → socket

One event loop owns all state. What waits (counting tokens, Kafka's acknowledgement, Redis) runs in a task of its own;
everything that changes the in-flight table is plain synchronous code.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from gateway.admission.control import AdmissionLimits, check_connection, check_length, promise
from gateway.kafka.request_publisher import RequestPublisher
from gateway.people.people import People
from gateway.request.cursor import Told, response_id
from gateway.request.entry import Entry, Item
from gateway.request.inflight import InflightTable
from gateway.serving.admission_gate import AdmissionGate
from gateway.serving.answering import Answering
from gateway.serving.deadlines import Deadlines
from gateway.serving.erasing import Erasing, not_erased
from gateway.session.connection import Connection, put_all, refuse
from gateway.session.connections import Connections
from gateway.session.keyed_locks import KeyedLocks
from gateway.session.protocol import Ask, Begin, CancelAsked, Close, Effect, ForCare, Forget, Refuse, Send, Session
from gateway.session.rate_limits import RateLimits
from gateway.session.resumption import Resumption
from gateway.telemetry.tracer import Tracer
from shared.conversation.history import History
from shared.errors import BrokerUnavailable, ProtocolError, StoreUnavailable
from shared.faq.live import LiveFaq
from shared.model.tokenizer import Tokenizer
from shared.process.clock import correction_ms, now_unix_ms, wire_unix_ms
from shared.process.tasks import Tasks
from shared.telemetry import metrics
from shared.telemetry.faults import task_failed
from shared.telemetry.logs import get_logger
from shared.wire.messages import ClientMessage, Erase, ResponseCreate
from shared.wire.topics import bucket_of_length, surely_short

log = get_logger()

_IDLE_POLL_S = 0.02


@dataclass(slots=True, kw_only=True)
class Gateway:
    limits: AdmissionLimits
    tokenizer: Tokenizer
    faq: LiveFaq
    history: History
    publisher: RequestPublisher
    admission_gate: AdmissionGate
    rate_limits: RateLimits
    resumption: Resumption
    people: People
    tracer: Tracer = field(default_factory=Tracer)
    inflight: InflightTable = field(default_factory=InflightTable)
    connections: Connections = field(default_factory=Connections)
    answering: Answering = field(init=False)
    _deadlines: Deadlines = field(init=False)
    _erasing: Erasing = field(init=False)
    _beside: Tasks = field(default_factory=lambda: Tasks(task_failed))
    _locks: KeyedLocks = field(default_factory=KeyedLocks)

    def __post_init__(self) -> None:
        self.answering = Answering(
            inflight=self.inflight,
            connections=self.connections,
            publisher=self.publisher,
            admission_gate=self.admission_gate,
            resumption=self.resumption,
            people=self.people,
            tracer=self.tracer,
            faq=self.faq,
            history=self.history,
            beside=self._beside,
        )
        self._deadlines = Deadlines(inflight=self.inflight, answering=self.answering)
        self._erasing = Erasing(
            history=self.history,
            publisher=self.publisher,
            inflight=self.inflight,
            answering=self.answering,
            people=self.people,
        )

    # --- clients

    def opened(self, connection: Connection) -> bool:
        """Return whether there is room for a connection; else it is closed."""
        let_in = self.rate_limits.lets_in(connection)
        if let_in:
            self.connections.add(connection)
        return let_in

    def closed(self, connection: Connection) -> None:
        """Let a socket go that is gone; its requests go on, and their answers into the history."""
        self.rate_limits.sockets.leave(connection.session.connection_id)
        if self.connections.remove(connection) and connection.num_inflight:
            self.inflight.detach(connection.session.connection_id)

    async def received(self, connection: Connection, message: ClientMessage) -> None:
        """Take a decoded message, the connection's next: it waits for Redis, and a token for its key. Errors go to the
        client; the connection stays."""
        event_id = getattr(message, "event_id", None)
        try:
            if await self.rate_limits.admits(connection, message):
                await self._carry_out(connection, connection.session.receive(message, now_unix_ms()))
        except ProtocolError as error:
            refuse(connection, error, event_id)
        connection.flush()

    async def tick(self, connection: Connection) -> None:
        """Once a second for each connection: hello, ping, pong."""
        await self._carry_out(connection, connection.session.tick(now_unix_ms()))
        connection.flush()

    async def _carry_out(self, connection: Connection, effects: Iterable[Effect]) -> None:
        async for effect in self.rate_limits.passing(connection, effects):
            match effect:
                case Send(message):
                    connection.put(message)
                case Begin():
                    await self._begin(connection, effect)
                case Refuse(error):
                    refuse(connection, error)
                case Ask(request):
                    await self._ask(connection, request)
                case CancelAsked():
                    self._cancel(connection, effect)
                case ForCare(message):
                    self.people.received(connection, message)
                case Forget():
                    await self._forget(connection)
                case Close(code, reason):
                    connection.close(code, reason)

    # --- a client comes, or comes back

    async def _begin(self, connection: Connection, begin: Begin) -> None:
        """Begin a session. What the client missed follows at once where it is held here; what another gateway began is
        read from the log."""
        session, resume, now = connection.session, begin.resume, now_unix_ms()
        generation = (await self._erasing.of(session))[0] if resume is not None else 0
        seal = self.resumption.seal(session)
        told = self.resumption.resumable(seal, resume, wire_unix_ms(), self.inflight) if resume is not None else None
        connection.begin(seal, told or (), now)
        erased = [each for each in told or () if each.generation < generation]
        missed = [item for each in told or () if each not in erased for item in self._resume(connection, each, now)]
        connection.put(session.created(recovered=told is not None, replayed=len(missed)))
        put_all(connection, missed)
        for each in erased:
            self._tell_erased(connection, each, now)
        self._deadlines.watch()
        if begin.returns:
            self.people.came_back(connection)

    def _resume(self, connection: Connection, told: Told, now: float) -> list[Item]:
        session = connection.session
        entry = self.inflight.get_any(told.response_id)
        if entry is not None:
            self.connections.take_over(connection, entry)
            return self.inflight.resume(entry, session.connection_id, told)
        entry = self._adopt(connection, told, now)
        with self.inflight.beginning(entry):
            self.answering.work_on(entry, self._recall(entry))
        return []

    def _adopt(self, connection: Connection, told: Told, now: float) -> Entry:
        session = connection.session
        entry = self.inflight.adopt(told, session.key, session.connection_id, now)
        self.connections.count_in(connection)
        with self.inflight.beginning(entry):
            entry.trace = self.tracer.adopt(told.trace, now)
        metrics.inflight.set(len(self.inflight))
        return entry

    def _tell_erased(self, connection: Connection, told: Told, now: float) -> None:
        """Tell the client that the answer was cancelled, and nothing of it."""
        entry = self._adopt(connection, told, now)
        self.answering.cancel(entry)
        self.inflight.forget(entry)

    async def _recall(self, entry: Entry) -> None:
        """Read on where the other gateway was; until all that the log holds is known, no deadline ends the answer."""
        await self.resumption.recall(entry, self.answering.replied)
        self.inflight.recalled(entry)
        self._deadlines.watch()

    # --- a request's way in

    async def _ask(self, connection: Connection, asked: ResponseCreate) -> None:
        """Take a question. Raises `ProtocolError` where it is not taken."""
        session, now = connection.session, now_unix_ms()
        generation, sure = await self._erasing.of(session)
        known = self.inflight.find(session.key, asked.event_id)
        if known is not None:
            if self.connections.waits_elsewhere(connection, known):
                check_connection(self.limits, connection.num_inflight)
            self.connections.take_over(connection, known)
            known.input = known.input or asked.input
            put_all(connection, self.inflight.reattach(known, session.connection_id))
            self._deadlines.watch()
            return
        self.admission_gate.check_room(self.limits, inflight=len(self.inflight), of_connection=connection.num_inflight)
        entry = Entry(
            response_id=response_id(session.key, asked.event_id, asked.input, generation),
            event_id=asked.event_id,
            session=session.key,
            connection_id=session.connection_id,
            input=asked.input,
            received_unix_ms=now,
            deadline=promise(asked, self.limits, now),
            clock_ms=correction_ms(),
            generation=generation if sure else max(generation, int(wire_unix_ms()) - 1),
            sure=sure,
            consent=session.consent,
            log=self.publisher.log_place(),
            trace=self.tracer.begin(asked.traceparent),
        )
        self.connections.count_in(connection)
        with self.inflight.beginning(entry):
            self.inflight.accept(entry)
            self._deadlines.watch()
            self.answering.work_on(entry, self._admit(entry, asked, session))
        metrics.inflight.set(len(self.inflight))

    async def _admit(self, entry: Entry, asked: ResponseCreate, session: Session) -> None:
        """Count, decide, publish; a session's questions one after the other. Whatever Kafka does, the deadline's timer
        stands behind."""
        try:
            async with self._locks.hold(entry.session):
                delivery = await self._send(entry, asked, session)
            if delivery is None:
                return
            entry.request = await self.publisher.delivered(entry, delivery)
        except (BrokerUnavailable, ProtocolError) as error:
            log.warning("publish_failed", request_id=entry.response_id, cause=str(error))
            self.admission_gate.withdrawn(entry)
            if entry.response is None:
                self.answering.fall_back(entry, "broker")
            return
        if entry.response is not None:
            if not entry.published:  # cancelled or answered by the FAQ meanwhile: the worker need not start
                await self.publisher.cancel(entry)
            return
        self.answering.show(entry, self.inflight.acknowledge(entry))

    async def _send(self, entry: Entry, asked: ResponseCreate, session: Session) -> "asyncio.Future[object] | None":
        """Send a request; return its delivery to Kafka, None where the workers do not get it. Raises
        `BrokerUnavailable`, `ProtocolError` where Kafka does not take it."""
        if entry.response is not None:  # while it stood in line
            return None
        try:
            await self.rate_limits.quotas.take_shared("ask", session.caller)
            num_tokens = await self._count(entry.input)
            check_length(self.limits, num_tokens)
            stand_in = await self.people.wished(entry, self.connections.of(entry), session.caller)
        except ProtocolError as error:
            self._refuse(entry, error)
            return None
        if entry.done:
            return None
        self.inflight.admit(entry, bucket_of_length(num_tokens), now_unix_ms())
        entry.partition = self.publisher.partition_of(entry)
        metrics.accepted.labels(entry.bucket).inc()
        if stand_in is not None:
            self.answering.give(entry, stand_in)
            return None
        light = self.admission_gate.light_path(entry, now_unix_ms())
        if light is not None:
            self.answering.fall_back(entry, light)
            return None
        return await self.publisher.enqueue(entry, asked)

    def _refuse(self, entry: Entry, error: ProtocolError) -> None:
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

    async def _count(self, text: str) -> int:
        """Tokens of the input; off the loop, and not at all where its bytes already show that it is short."""
        if surely_short(text):
            return 0
        return await asyncio.to_thread(self.tokenizer.count, text)

    # --- the client's own will

    def _cancel(self, connection: Connection, cancel: CancelAsked) -> None:
        """One that has ended meanwhile stays as it is; where there is no such answer, the client is told."""
        session = connection.session
        entry = self.inflight.named(session.key, cancel.response_id, cancel.event_id)
        if entry is None:
            name = cancel.response_id or cancel.event_id
            error = ProtocolError("unknown_response", f"no answer {name!r} is in flight in this session")
            refuse(connection, error, cancel.event_id)
        elif not entry.done:
            self.answering.cancel(entry)

    async def _forget(self, connection: Connection) -> None:
        """`session.delete`. What the client asks next is of the conversation that begins."""
        try:
            generation = await self._erasing.begin(connection.session)
        except StoreUnavailable:
            refuse(connection, not_erased())
        else:
            self._beside.start(self._erasing.tell(connection, generation))

    def erased(self, erase: Erase) -> None:
        """Take in that a gateway has erased a conversation."""
        self._erasing.heard(erase)

    # --- bookkeeping

    async def idle(self) -> None:
        """Wait until no request is in flight."""
        while len(self.inflight) or len(self._beside) or len(self.people):  # noqa: ASYNC110 - asked once in a process's life
            await asyncio.sleep(_IDLE_POLL_S)
