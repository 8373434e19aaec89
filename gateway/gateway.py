"""The gateway's heart, and the only file that touches every step of a request at the edge.

    session → inflight → gatekeeper (admission) → request_publisher ⇒ Kafka
    Kafka ⇒ reply_consumer → inflight → outbox → socket

One event loop owns all state. What waits (counting tokens, Kafka's acknowledgement, Redis) runs in a task of its own;
everything that changes the in-flight table is plain synchronous code.
"""

import asyncio
import secrets
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from gateway.admission import AdmissionLimits, FallbackReason, check_inflight, check_length, promise
from gateway.connection import Connection
from gateway.gatekeeper import Gatekeeper
from gateway.inflight import Entry, InflightTable, Item
from gateway.request_publisher import RequestPublisher
from gateway.session import Ask, CancelAsked, Close, Effect, Forget, Send, error_event
from shared import metrics
from shared.clock import now_unix_ms
from shared.errors import BrokerUnavailable, ProtocolError, StoreUnavailable
from shared.fallback import choose_fallback
from shared.faq import FaqIndex
from shared.history import History
from shared.logs import get_logger
from shared.messages import ClientMessage, Reply, ReplyDelta, ReplyDone, ResponseCreate, SessionDeleted
from shared.tokenizer import Tokenizer
from shared.topics import BucketEdges
from shared.tracing import make_traceparent
from shared.turn import Turn

log = get_logger()

_IDLE_POLL_S = 0.02


@dataclass(slots=True, kw_only=True)
class Gateway:
    limits: AdmissionLimits
    edges: BucketEdges
    tokenizer: Tokenizer
    faq: FaqIndex
    min_score: float
    history: History
    publisher: RequestPublisher
    gatekeeper: Gatekeeper
    inflight: InflightTable = field(default_factory=InflightTable)
    connections: dict[str, Connection] = field(default_factory=dict)
    draining: bool = False
    _timer: asyncio.TimerHandle | None = None
    _timer_unix_ms: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    # --- clients

    def opened(self, connection: Connection) -> None:
        self.connections[connection.session.connection_id] = connection
        metrics.connections.set(len(self.connections))

    def closed(self, connection: Connection) -> None:
        """The socket is gone; its requests go on, and their answers into the history."""
        if self.connections.pop(connection.session.connection_id, None) is not None and connection.num_inflight:
            self.inflight.detach(connection.session.connection_id)
        metrics.connections.set(len(self.connections))

    def received(self, connection: Connection, message: ClientMessage) -> None:
        """A decoded message. Errors go to the client; the connection stays."""
        event_id = message.event_id if isinstance(message, ResponseCreate) else None
        try:
            self._carry_out(connection, connection.session.receive(message, now_unix_ms()))
        except ProtocolError as error:
            self.refuse(connection, error, event_id)
        connection.flush()

    def refuse(self, connection: Connection, error: ProtocolError, event_id: str | None = None) -> None:
        metrics.refused.labels(error.code).inc()
        connection.put(error_event(error, event_id))

    def tick(self, connection: Connection) -> None:
        """Once a second for each connection: hello, ping, pong."""
        self._carry_out(connection, connection.session.tick(now_unix_ms()))
        connection.flush()

    def _carry_out(self, connection: Connection, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(message):
                    connection.put(message)
                case Ask(request):
                    self._ask(connection, request)
                case CancelAsked():
                    self._cancel(connection, effect)
                case Forget():
                    self._background(self._forget(connection))
                case Close(code, reason):
                    connection.close(code, reason)

    # --- a request's way in

    def _ask(self, connection: Connection, asked: ResponseCreate) -> None:
        """Raises `ProtocolError` where it is not taken."""
        session = connection.session
        known = self.inflight.find(connection.tenant, session.session_id, asked.event_id)
        if known is not None:
            self._adopt(connection, known)
            return
        now = now_unix_ms()
        check_inflight(
            self.limits, inflight=len(self.inflight), of_connection=connection.num_inflight, draining=self.draining
        )
        entry = Entry(
            response_id=f"resp_{secrets.token_hex(12)}",
            event_id=asked.event_id,
            tenant=connection.tenant,
            session_id=session.session_id,
            connection_id=session.connection_id,
            input=asked.input,
            received_unix_ms=now,
            deadline=promise(asked, self.limits, now),
        )
        self.inflight.accept(entry)
        connection.num_inflight += 1
        metrics.inflight.set(len(self.inflight))
        self._set_timer()
        self._background(self._admit(entry, asked))

    def _adopt(self, connection: Connection, entry: Entry) -> None:
        """The client repeats an event: it gets that response, from its beginning."""
        if entry.response is None and entry.connection_id != connection.session.connection_id:
            self._count_out(entry)
            connection.num_inflight += 1
        for item in self.inflight.reattach(entry, connection.session.connection_id):
            connection.put(item)

    async def _admit(self, entry: Entry, asked: ResponseCreate) -> None:
        """Count, decide, publish. Whatever Kafka does, the deadline's timer stands behind."""
        try:
            num_tokens = await self._count(entry.input)
            check_length(self.limits, num_tokens)
        except ProtocolError as error:
            self._refuse_accepted(entry, error)
            return
        if entry.done:
            return
        self.inflight.admit(entry, self.edges.bucket_of(num_tokens), now_unix_ms())
        metrics.accepted.labels(entry.bucket).inc()
        light = self.gatekeeper.light_path(entry, now_unix_ms())
        if light is not None:
            self._fall_back(entry, light)
            return
        if asked.traceparent is None:
            asked = _with_trace(asked)
        try:
            await self.publisher.publish(entry, asked)
        except (BrokerUnavailable, ProtocolError) as error:
            log.warning("publish_failed", request_id=entry.response_id, cause=str(error))
            self.gatekeeper.withdrawn(entry)
            if entry.response is None:
                self._fall_back(entry, "broker")
            return
        if entry.response is not None:
            if not entry.published:  # cancelled or answered by the FAQ meanwhile: the worker need not start
                await self._tell_workers(entry)
            return
        self._show(entry, self.inflight.acknowledge(entry))

    async def _count(self, text: str) -> int:
        """Tokens of the input; off the loop, and not at all where its bytes already show that it is short."""
        if self.edges.surely_short(text):
            return 0
        return await asyncio.to_thread(self.tokenizer.count, text)

    def _refuse_accepted(self, entry: Entry, error: ProtocolError) -> None:
        if entry.done:
            return
        self._count_out(entry)
        self.inflight.refuse(entry)
        metrics.inflight.set(len(self.inflight))
        connection = self._connection_of(entry)
        if connection is not None:
            self.refuse(connection, error, entry.event_id)
            connection.flush()

    # --- an answer's way out

    def replied(self, replies: Sequence[Reply]) -> None:
        """What the workers say, a batch at a time: each client touched is written to once."""
        now = now_unix_ms()
        touched: dict[str, Connection] = {}
        for reply in replies:
            entry = self.inflight.get(reply.request_id)
            if entry is None:
                metrics.replies_dropped.labels("unknown").inc()
                continue
            connection = self._connection_of(entry)
            if isinstance(reply, ReplyDelta):
                shown = self.inflight.delta(reply, now)
                if shown is not None and connection is not None:
                    connection.put(shown)
                    touched[connection.session.connection_id] = connection
                continue
            self._finish(entry, reply, now)
        for connection in touched.values():
            connection.flush()
        self.gatekeeper.heard(replies, now)

    def _finish(self, entry: Entry, reply: ReplyDone, now: float) -> None:
        if not (entry.created and entry.chars) and not reply.output_text:
            self._fall_back(entry, "worker")  # the model had nothing to say, or the worker gave up
            return
        self._show(entry, self.inflight.finish(entry, reply, now))

    def _show(self, entry: Entry, items: Iterable[Item]) -> None:
        """Hand items to the client, and settle the books when the answer has ended."""
        connection = self._connection_of(entry)
        if connection is not None:
            for item in items:
                connection.put(item)
            connection.flush()
        if entry.done:
            self._count_out(entry)
            self._ended(entry)

    def _ended(self, entry: Entry) -> None:
        response = entry.response
        assert response is not None
        self.gatekeeper.ended(entry, response)
        metrics.inflight.set(len(self.inflight))
        metrics.answers.labels(response.source, response.status, response.reason).inc()
        timings = response.timings
        if timings.total_ms is not None:
            metrics.e2e.labels(response.source).observe(timings.total_ms / 1_000)
        if timings.ttft_ms is not None and response.source == "model":
            metrics.ttft.labels(entry.bucket).observe(timings.ttft_ms / 1_000)
        log.info(
            "answered",
            request_id=entry.response_id,
            bucket=entry.bucket,
            source=response.source,
            status=response.status,
            reason=response.reason,
            fallback=entry.fallback,
            ttft_ms=timings.ttft_ms,
            total_ms=timings.total_ms,
            output_tokens=response.usage.output_tokens,
        )

    # --- the deadline, and the client's own will

    def _set_timer(self) -> None:
        """One timer for the earliest deadline of all."""
        due = self.inflight.next_due_unix_ms()
        if due is None or (self._timer is not None and self._timer_unix_ms <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_unix_ms = due
        delay_s = max(0.0, (due - now_unix_ms()) / 1_000)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._deadline_came)

    def _deadline_came(self) -> None:
        self._timer = None
        now = now_unix_ms()
        try:
            for entry in self.inflight.late(now):
                if entry.created and entry.chars:
                    self._show(entry, self.inflight.cut(entry, now))
                else:
                    self._fall_back(entry, "deadline")
                if entry.published:
                    self._background(self._tell_workers(entry))
        finally:
            self._set_timer()

    def _fall_back(self, entry: Entry, why: FallbackReason) -> None:
        """The FAQ answers in the model's stead, and the conversation remembers it."""
        entry.fallback = why
        metrics.fallbacks.labels(why).inc()
        fallback = choose_fallback(entry.input, self.faq.search(entry.input), min_score=self.min_score)
        self._show(entry, self.inflight.fall_back(entry, fallback, now_unix_ms()))
        if fallback.source == "faq":
            turn = Turn(
                request_id=entry.response_id,
                user=entry.input,
                assistant=fallback.text,
                source=fallback.source,
                asked_unix_ms=int(entry.received_unix_ms),
            )
            self.history.remember(entry.tenant, entry.session_id, turn)

    def _cancel(self, connection: Connection, cancel: CancelAsked) -> None:
        """Raises `ProtocolError` where there is no such answer in flight."""
        session = connection.session
        entry = self.inflight.get(cancel.response_id) if cancel.response_id else None
        if entry is None and cancel.event_id:
            entry = self.inflight.find(connection.tenant, session.session_id, cancel.event_id)
        if entry is None or (entry.tenant, entry.session_id) != (connection.tenant, session.session_id):
            name = cancel.response_id or cancel.event_id
            raise ProtocolError("unknown_response", f"no answer {name!r} is in flight in this session")
        if not entry.done:
            self._cancel_entry(entry)

    def _cancel_entry(self, entry: Entry) -> None:
        self._show(entry, self.inflight.cancel(entry, now_unix_ms()))
        if entry.published:
            self._background(self._tell_workers(entry))

    async def _tell_workers(self, entry: Entry) -> None:
        try:
            await self.publisher.cancel(entry.response_id)
        except (BrokerUnavailable, ProtocolError) as error:  # the worker finds out by the deadline
            log.warning("cancel_not_published", request_id=entry.response_id, cause=str(error))

    async def _forget(self, connection: Connection) -> None:
        """`session.delete`: what is in flight is cancelled, the history erased, and what was computed of it."""
        tenant, session_id = connection.tenant, connection.session.session_id
        for entry in self.inflight.of_session(tenant, session_id):
            self._cancel_entry(entry)
        self.inflight.forget_session(tenant, session_id)
        try:
            await self.history.delete(tenant, session_id)
            await self.publisher.erase(tenant, session_id)
        except (StoreUnavailable, BrokerUnavailable):
            error = ProtocolError(
                "history_unavailable",
                "the history cannot be erased now; try again",
                kind="server_error",
                retriable=True,
                retry_after_ms=1_000,
            )
            self.refuse(connection, error)
        else:
            connection.put(SessionDeleted(session_id=session_id))
        connection.flush()

    # --- bookkeeping

    def _connection_of(self, entry: Entry) -> Connection | None:
        return self.connections.get(entry.connection_id) if entry.connection_id is not None else None

    def _count_out(self, entry: Entry) -> None:
        connection = self._connection_of(entry)
        if connection is not None:
            connection.num_inflight -= 1

    def _background(self, work: Coroutine[object, object, None]) -> None:
        """Run beside; a fault of our own is counted and logged here, at the process's edge, and ends one request."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            metrics.handler_errors.inc()
            log.error("handler_failed", exc_info=error)

    async def idle(self) -> None:
        """Wait until no request is in flight."""
        while len(self.inflight) or self._tasks:  # noqa: ASYNC110 - asked once in a process's life
            await asyncio.sleep(_IDLE_POLL_S)


def _with_trace(asked: ResponseCreate) -> ResponseCreate:
    return msgspec.structs.replace(asked, traceparent=make_traceparent(secrets.randbits(192)))
