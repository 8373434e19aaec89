"""Send an accepted question to its destination: count tokens, claim a partition, choose, publish; or fall back."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from gateway.access.charges import Caller
from gateway.access.quotas import Quotas
from gateway.destination.choose import View, below, by_rule, choose
from gateway.destination.claim import Claims
from gateway.destination.count import TokenCount
from gateway.destination.destination import Fallback
from gateway.destination.gate import AdmissionGate
from gateway.kafka.request_publisher import RequestPublisher
from gateway.people.people import People
from gateway.request.entry import Entry
from gateway.serving.answering import Answering
from gateway.serving.shadowing import Shadowing
from shared.errors import BrokerUnavailable, ProtocolError
from shared.process.clock import now_unix_ms
from shared.process.keyed_locks import KeyedLocks
from shared.telemetry import metrics
from shared.telemetry.logs import get_logger
from shared.wire.session_key import SessionKey

log = get_logger()

_MOST_CONVERSATIONS: Final = 10_000

Delivery = asyncio.Future[object]


@dataclass(slots=True, kw_only=True)
class Sending:
    """Sends each question to Kafka in its own task, which waits for Redis, the tokenizer and Kafka. Only this module
    writes a request's destination."""

    token_count: TokenCount
    quotas: Quotas
    people: People
    admission_gate: AdmissionGate
    claims: Claims
    publisher: RequestPublisher
    answering: Answering
    shadowing: Shadowing
    _locks: KeyedLocks = field(default_factory=KeyedLocks, init=False)
    _last_sent: OrderedDict[SessionKey, str] = field(default_factory=OrderedDict, init=False)

    async def send(self, entry: Entry, caller: Caller) -> None:
        """Send a question after its session's earlier ones. Its deadlines run while it waits."""
        try:
            async with self._locks.hold(entry.request.session):
                delivery = await self._send(entry, caller)
            if delivery is None:
                return
            entry.publication.place = await self.publisher.await_delivery(entry, delivery)
        except (BrokerUnavailable, ProtocolError) as error:
            self._fall_back(entry, error)
            return
        if entry.answer.response is not None:
            if not entry.publication.published:  # cancelled or answered by the FAQ: the worker need not start
                await self.publisher.cancel(entry)
            return
        self.answering.deliver(entry, entry.acknowledge())

    async def _send(self, entry: Entry, caller: Caller) -> Delivery | None:
        """Send a question.

        Returns:
            The future of its delivery to Kafka; None if the workers do not get the question.

        Raises:
            BrokerUnavailable: Kafka is unavailable
            ProtocolError: Kafka rejects the record
        """
        asked = entry.request.asked
        assert asked is not None, "this gateway did not accept the request"
        if entry.answer.response is not None:  # ended while waiting for the session's earlier questions
            return None
        try:
            await self.quotas.charge_shared("ask", caller)
            bucket = await self.token_count.bucket_of(asked.input)
            stand_in = await self.people.answer_wish(entry, self.answering.connections.of, caller, asked.turns)
        except ProtocolError as error:
            self.answering.refuse(entry, error)
            return None
        if entry.answer.done:
            return None
        view = self.admission_gate.view(now_unix_ms())
        entry.publication.destination = by_rule(entry.request.session, bucket, view)
        entry.answer.admit(view.now_unix_ms)
        metrics.accepted.labels(bucket).inc()
        if stand_in is None:
            return await self._publish(entry, view)
        self.answering.answer_with(entry, stand_in)
        return None

    async def _publish(self, entry: Entry, view: View) -> Delivery | None:
        """Choose a question's destination once, and publish the question there. Raises `BrokerUnavailable`,
        `ProtocolError`."""
        question, report = entry.request, self.admission_gate.report
        report.count_asked(entry.publication.destination)
        wanted = entry.publication.destination
        if view.admissions.is_empty(view.now_unix_ms) and self.answering.answer_surely(entry, "infeasible"):
            report.count_decided(wanted, Fallback("infeasible", wanted))
            return None
        wanted, view = await self.claims.claim(question, wanted, view)
        if entry.answer.done:  # ended during the claim
            self.claims.release(question.session, question.response_id)
            return None
        where = choose(question, wanted, view)
        report.count_decided(wanted, where)
        if isinstance(where, Fallback):
            entry.publication.destination = where.wanted
            self.answering.fall_back(entry, where.reason)
            return None
        entry.publication.destination = where
        if view.state.shadow_share:
            self.shadowing.keep(entry, view)
        self._last_sent[question.session] = question.response_id
        self._last_sent.move_to_end(question.session)
        if len(self._last_sent) > _MOST_CONVERSATIONS:
            self._last_sent.popitem(last=False)
        return await self.publisher.enqueue(entry, view.now_unix_ms)

    # --- a lane's workers gave a question up before any text of its answer was shown

    def descend(self, entry: Entry, now: float) -> bool:
        """Publish a question again, to a rung that can answer it in the time left (`below`).

        Returns:
            Whether such a rung was found. False if another gateway accepted the question, because its message is not
                known here.
        """
        if entry.request.asked is None or entry.answer.admitted_unix_ms is None:
            return False
        given_up = entry.publication.destination
        view, overtaken = self.admission_gate.view(now), self._is_overtaken(entry)
        to = below(entry.request, given_up, view, overtaken=overtaken)
        report = self.admission_gate.report
        report.log_rung()
        if to is None:
            return False
        report.count_passed_on(given_up)
        report.count_asked(to)
        report.count_sent(to)
        entry.publication.destination = to
        self.answering.run_for(entry, self._publish_again(entry, now))
        return True

    async def _publish_again(self, entry: Entry, now: float) -> None:
        try:
            async with self._locks.hold(entry.request.session):
                if entry.answer.done:
                    return
                if self._is_overtaken(entry):  # since it was given up
                    self.admission_gate.admissions.withdraw(entry.response_id)
                    self.answering.fall_back(entry, "worker")
                    return
                delivery = await self.publisher.enqueue(entry, now)
            entry.publication.place = await self.publisher.await_delivery(entry, delivery)
        except (BrokerUnavailable, ProtocolError) as error:
            self._fall_back(entry, error)

    def _is_overtaken(self, entry: Entry) -> bool:
        """Return whether a later question of the conversation was sent here, or 10,000 conversations sent one since."""
        return self._last_sent.get(entry.request.session) != entry.response_id

    def _fall_back(self, entry: Entry, error: BrokerUnavailable | ProtocolError) -> None:
        """Answer a question that Kafka did not accept from the FAQ."""
        log.warning("publish_failed", request_id=entry.response_id, cause=str(error))
        self.admission_gate.admissions.withdraw(entry.response_id)
        if not entry.answer.done:
            self.answering.fall_back(entry, "broker")
