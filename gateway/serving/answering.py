"""Deliver answers to their clients: text, fallbacks and ends."""

from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from gateway.destination.admission import FallbackReason
from gateway.destination.gate import AdmissionGate
from gateway.kafka.request_publisher import RequestPublisher
from gateway.request import endings
from gateway.request.entry import Entry, Item
from gateway.request.inflight import InflightTable
from gateway.request.resumption import learn_question
from gateway.session.connection import Connections, refuse, write
from gateway.session.recall import Recall
from shared.conversation.history import History
from shared.errors import ProtocolError
from shared.faq import FaqHit, Language
from shared.faq.answer_policy import AnswerPolicy
from shared.faq.fallback import Fallback, choose_fallback
from shared.faq.live import LiveFaq
from shared.faq.words.fold import plain
from shared.process.clock import now_unix_ms, wire_unix_ms
from shared.process.tasks import Tasks
from shared.telemetry import metrics
from shared.telemetry.faults import caught, contain_each, contained
from shared.wire.failed_ends import OWN_FAULT
from shared.wire.outcome import Reason, Response


@dataclass(slots=True, kw_only=True)
class Answering:
    """Owned by the gateway's event loop. Each function of `on_end` is called once per ended answer; if one raises, the
    others still run."""

    inflight: InflightTable
    connections: Connections
    publisher: RequestPublisher
    admission_gate: AdmissionGate
    recall: Recall
    faq: LiveFaq
    policy: AnswerPolicy
    history: History
    beside: Tasks
    on_end: Sequence[Callable[[Entry, Response], object]]
    language_of: Callable[[Entry], Language]

    # --- fallbacks

    def fall_back(self, entry: Entry, why: FallbackReason) -> None:
        """Answer from the FAQ instead of the model. The question of an adopted request is read first."""
        if entry.answer.fallback is not None:
            return  # the soft deadline passed, and the question is still being read
        entry.answer.fallback = why
        if entry.input:
            self._answer_from_faq(entry, why)
        else:
            self.run_for(entry, self._read_and_answer(entry, why))

    async def _read_and_answer(self, entry: Entry, why: FallbackReason) -> None:
        learn_question(entry, await self.recall.question(entry, now_unix_ms()))
        if not entry.answer.done:
            self._answer_from_faq(entry, why)
            self.stop_worker(entry)

    def _answer_from_faq(self, entry: Entry, why: FallbackReason) -> None:
        if entry.answer.visible:  # the log had text after all
            entry.answer.fallback = None
            if entry.deadline.expired(now_unix_ms(), started=True):
                self.end(entry, endings.cut(entry, now_unix_ms()))
            return
        metrics.fallbacks.labels(why).inc()
        self.answer_with(entry, self._found_in_faq(entry))

    def _found_in_faq(self, entry: Entry) -> Fallback:
        question, hits = plain(entry.input), list[FaqHit]()
        with contained("answer", request_id=entry.response_id):  # if the search fails, the answer is "busy"
            hits += self.faq.index.search(question)
        confident, ways_on = self.policy.thresholds.confident, self.policy.ways_on
        chosen = choose_fallback(question, hits, confident=confident, ways_on=ways_on, language=self.language_of(entry))
        return self.faq.freshness.told(chosen, wire_unix_ms())

    def answer_surely(self, entry: Entry, why: FallbackReason) -> bool:
        """Answer from the FAQ if it is sure, and answers are to follow it; return whether it did."""
        if not self.policy.grounded or (found := self._found_in_faq(entry)).source != "faq":
            return False
        entry.answer.fallback = why
        metrics.fallbacks.labels(why).inc()
        self.answer_with(entry, found)
        return True

    def answer_with(self, entry: Entry, answer: Fallback) -> None:
        """End an answer with a fallback and store it in the history, unless it is "busy"."""
        self.end(entry, endings.fall_back(entry, answer, now_unix_ms()))
        with contained("history", request_id=entry.response_id):
            response = entry.answer.response
            if response is not None and response.source != "busy":
                self.history.remember(entry.request.session, entry.turn(response))

    # --- the end

    def refuse(self, entry: Entry, error: ProtocolError) -> None:
        """Refuse a request after it was accepted: its client gets an error instead of an answer."""
        if entry.answer.done:
            return
        self.connections.count_out(entry)
        self.inflight.refuse(entry)
        connection = self.connections.of(entry)
        if connection is not None:
            refuse(connection, error, entry.request.event_id)
            connection.flush()

    def deliver(self, entry: Entry, items: Iterable[Item]) -> None:
        """Write items to the client, and settle the answer if it has ended.

        Never raises: if the client cannot be written to, it is disconnected and gets the end when it returns.
        """
        if entry.answer.done:
            self.inflight.retire(entry)
        with contained("answer", request_id=entry.response_id) as writing:
            if (connection := self.connections.of(entry)) is not None:
                write(connection, items)
            if entry.answer.done:
                self.connections.count_out(entry)
        if writing.error is not None:
            self.connections.send_away(entry)
        if entry.answer.done:
            self._settle(entry)

    def _settle(self, entry: Entry) -> None:
        """Release the resources of an ended answer, count it and end its trace. If one step raises, the others still
        run."""
        response = entry.answer.response
        assert response is not None
        entry.answer.settled = True
        contain_each(
            "answer",
            *(partial(end, entry, response) for end in self.on_end),
            request_id=entry.response_id,
        )

    def end(self, entry: Entry, items: Iterable[Item]) -> None:
        """Deliver an end that this gateway decided, and publish it to the log."""
        self.deliver(entry, items)
        with contained("answer", request_id=entry.response_id):
            if entry.answer.fallback != "broker":
                self.beside.start(self.publisher.publish_end(entry))

    def fail(self, entry: Entry | None, *, torn: bool = False) -> None:
        """End an answer as failed after an internal fault. No other answer is affected.

        An answer that cannot be ended is forgotten, and its client asks again.

        Args:
            entry: the request; None does nothing
            torn: part of the answer may not have reached its client, which is therefore disconnected and resumes. The
                client of an undelivered end is disconnected as well.
        """
        if entry is None or entry.answer.settled:
            return
        if torn or entry.answer.done:
            self.connections.send_away(entry)
        if entry.answer.done:
            if entry.answer.response is not None:
                self.deliver(entry, ())
            return
        with contained("answer", request_id=entry.response_id) as ending:
            self.end(entry, endings.fail(entry, OWN_FAULT, now_unix_ms()))
            self.stop_worker(entry)
        if ending.error is None:
            return
        self.connections.send_away(entry)
        if entry.answer.response is not None:
            self.deliver(entry, ())
        else:
            self.inflight.refuse(entry)

    def run_for(self, entry: Entry, work: Coroutine[object, object, None]) -> None:
        """Run a task for one answer. If it raises, that answer fails."""
        self.beside.start(work, on_error=partial(self._fail_by_task, entry, entry.answer.created))

    def _fail_by_task(self, entry: Entry, was_created: bool, _task: str, error: BaseException) -> None:
        caught("answer", error, request_id=entry.response_id)
        self.fail(entry, torn=entry.answer.created and not was_created)

    def cancel(self, entry: Entry, why: Reason = "client") -> None:
        """Cancel an answer. Never raises: after an internal fault the answer ends as failed."""
        with contained("answer", request_id=entry.response_id) as cancelling:
            self.admission_gate.admissions.withdraw(entry.response_id)
            self.end(entry, endings.cancel(entry, now_unix_ms(), why))
            self.stop_worker(entry)
        if cancelling.error is not None:
            self.fail(entry)

    def stop_worker(self, entry: Entry) -> None:
        """Cancel a published request whose answer has ended here, so that the worker stops."""
        if entry.answer.done and entry.publication.published:
            self.beside.start(self.publisher.cancel(entry))
