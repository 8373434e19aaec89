"""Accept a question, or attach its client to the answer that it already has. Cancel an answer."""

from dataclasses import dataclass

from gateway.access.charges import Caller
from gateway.destination.admission import AdmissionLimits, check_connection, check_inflight, promise
from gateway.request.entry import Entry, Request, response_id
from gateway.request.inflight import InflightTable
from gateway.request.resumption import learn_question, reattach
from gateway.serving.answering import Answering
from gateway.serving.deadlines import Deadlines
from gateway.serving.erasing import Generation
from gateway.serving.sending import Sending
from gateway.serving.talking import Talking
from gateway.session.connection import Connection, Connections, put_all, refuse
from gateway.session.effects import CancelRequest
from gateway.telemetry.tracer import Tracer
from shared.errors import ProtocolError
from shared.process.clock import correction_ms
from shared.wire.messages import ResponseCreate


@dataclass(slots=True, kw_only=True)
class Asking:
    """Accepts the questions of all connections, each at most once, and cancels answers. Not thread-safe: only the
    gateway's event loop calls it."""

    limits: AdmissionLimits
    inflight: InflightTable
    connections: Connections
    talking: Talking
    tracer: Tracer
    deadlines: Deadlines
    sending: Sending
    answering: Answering

    def ask(
        self, connection: Connection, asked: ResponseCreate, caller: Caller, generation: Generation, now: float
    ) -> None:
        """Accept a question received at `now` in this generation of its conversation. Raises `ProtocolError` if it is
        refused."""
        session, key = connection.session, caller.session
        known = self.inflight.find(key, asked.event_id)
        if known is not None:
            self._attach(connection, known, asked)
            return
        gate = self.answering.admission_gate
        check_inflight(
            self.limits,
            inflight=len(self.inflight),
            of_connection=connection.num_inflight,
            draining=gate.draining,
            memory_full=gate.memory.refuses,
        )
        deadline = promise(asked, self.limits, now)
        self.connections.count_in(connection)
        request = Request(
            event_id=asked.event_id,
            session=key,
            input=asked.input,
            received_unix_ms=now,
            deadline=deadline,
            clock_ms=correction_ms(),
            generation=generation.number,
            generation_known=generation.is_sure,
            consent=session.consent,
            asked=asked,
            caller=caller,
            log=self.sending.publisher.log_place(),
            trace=self.tracer.start(asked.traceparent),
            response_id=response_id(key, asked.event_id, asked.input, generation.number),
        )
        entry = Entry(request=request, connection_id=session.connection_id)
        with self.inflight.refused_on_error(entry):
            self.inflight.accept(entry)
            if key in self.talking.log.talks.taken:
                entry.for_person = True
                self.answering.run_for(entry, self._ask_person(entry, caller))
                return
            self.deadlines.watch(entry)
            self.answering.run_for(entry, self.sending.send(entry, caller))

    async def _ask_person(self, entry: Entry, caller: Caller) -> None:
        """Send a question to the person who has the conversation, or to the workers if the person has given it back."""
        if not await self.talking.ask(entry, caller):
            entry.for_person = False
            self.deadlines.watch(entry)
            await self.sending.send(entry, caller)

    def _attach(self, connection: Connection, known: Entry, asked: ResponseCreate) -> None:
        """Attach a client to the existing answer to its question. Raises `ProtocolError`."""
        if self.connections.is_elsewhere(connection, known):
            check_connection(self.limits, connection.num_inflight)
        self.connections.attach(connection, known)
        learn_question(known, asked.input)
        put_all(connection, reattach(known, connection.session.connection_id))
        self.deadlines.watch(known)

    def cancel(self, connection: Connection, cancel: CancelRequest) -> None:
        """Cancel a request. An ended answer is left as it is; for an unknown one the client is sent an error."""
        session = connection.session
        entry = self.inflight.named(session.key, cancel.response_id, cancel.event_id)
        if entry is None:
            name = cancel.response_id or cancel.event_id
            error = ProtocolError("unknown_response", f"no answer {name!r} is in flight in this session")
            refuse(connection, error, cancel.event_id)
        elif not entry.answer.done:
            self.answering.cancel(entry)
