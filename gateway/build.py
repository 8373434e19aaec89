"""Build a gateway: its Kafka and Redis clients, its parts, and its forwarders."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from gateway.access.charges import Tariff
from gateway.access.jwks import Jwks
from gateway.access.quotas import Quotas
from gateway.destination.admission import AdmissionLimits
from gateway.destination.claim import Claims
from gateway.destination.count import TokenCount
from gateway.destination.gate import AdmissionGate
from gateway.forwarding.abandoned import AbandonedLanes
from gateway.forwarding.forwarding import Forwarding
from gateway.forwarding.router import Router
from gateway.kafka.log_follower import LogFollower
from gateway.kafka.question_reader import QuestionReader
from gateway.kafka.request_publisher import RequestPublisher
from gateway.people.bad_answers import BadAnswers
from gateway.people.people import People
from gateway.request.cursor import CursorKey
from gateway.request.entry import Entry
from gateway.request.inflight import InflightTable
from gateway.serving.answering import Answering
from gateway.serving.asking import Asking
from gateway.serving.deadlines import Deadlines, DueTimes
from gateway.serving.erasing import Erasing
from gateway.serving.gateway import Gateway
from gateway.serving.observing import Observing
from gateway.serving.receiving import Receiving
from gateway.serving.resuming import Resuming
from gateway.serving.sending import Sending
from gateway.serving.shadowing import Shadowing
from gateway.serving.talking import Talking
from gateway.session.connection import Connections
from gateway.session.rate_limits import RateLimits
from gateway.session.recall import Recall
from gateway.telemetry.answer_metrics import count_answer, count_judged
from gateway.telemetry.tracer import Tracer
from shared.conversation.handoff_store import HandoffStore
from shared.conversation.history import History
from shared.conversation.places import Places
from shared.conversation.session_value import SessionValue
from shared.conversation.turn import becomes_turn
from shared.faq.answer_policy import AnswerPolicy
from shared.faq.live import LiveFaq
from shared.kafka import Copies, KafkaWatch, LogReader, PartitionReader, Producer
from shared.process.tasks import Tasks
from shared.settings import Settings
from shared.telemetry.faults import task_failed
from shared.versions.log import VersionsLog
from shared.wire.outcome import Response
from shared.wire.topics import BROADCAST_PARTITION

_IDLE_POLL_S: Final = 0.02


class KafkaClients:
    """The Kafka clients, except those for the inbox."""

    def __init__(self, settings: Settings, source: str) -> None:
        kafka, topics, partition = settings.kafka, settings.kafka.topics, settings.gateway.reply_partition
        reader = partial(PartitionReader, kafka, client_id=source)
        log = partial(LogReader, kafka, client_id=source)
        self.producer = Producer(kafka, client_id=source)
        # Separate from `producer`: a producer that fails to deliver is replaced, and questions would wait for that.
        self.handoff_producer = Producer(kafka, client_id=f"{source}-handoffs")
        self.side_producer = Producer(kafka, client_id=f"{source}-side")  # for shadow requests and observations
        self.replies = reader(topic=topics.replies, partitions=[partition])
        self.reports = reader(topic=topics.workers, partitions=[BROADCAST_PARTITION], unhurried=True)
        self.erasures = reader(topic=topics.erasures, partitions=[BROADCAST_PARTITION], unhurried=True)
        self.people = reader(topic=topics.people, partitions=[BROADCAST_PARTITION])
        self.versions = VersionsLog.of(kafka, client_id=source)
        self.follower = LogFollower(lambda number: log(topic=topics.replies, partition=number))
        self.question_reader = QuestionReader(lambda topic, number: log(topic=topic, partition=number))
        self.copies = Copies(self.producer, kafka)
        self.watch = KafkaWatch(kafka, lambda: self.replies.connected)

    def missing(self) -> str | None:
        """Return why Kafka cannot be used, for `/ready`. Includes the hand-off producer: a client may ask for a person
        as soon as the gateway is ready."""
        clients = (self.producer, self.handoff_producer, self.replies)
        return None if all(client.connected for client in clients) else self.watch.why

    async def close(self) -> None:
        async with AsyncExitStack() as closing:
            for part in (
                self.side_producer,
                self.handoff_producer,
                self.producer,
                self.people,
                self.erasures,
                self.reports,
                self.replies,
            ):
                closing.push_async_callback(part.stop)
            closing.push_async_callback(self.question_reader.stop)
            closing.push_async_callback(self.follower.stop)
            closing.push_async_callback(self.versions.stop)


class RedisClients:
    """The Redis clients of a gateway."""

    def __init__(self, settings: Settings) -> None:
        self.history = History(settings.redis, kv=settings.redis_of_kv, journal_of=settings.journal_of)
        self.quotas = Quotas(Tariff(settings.quotas, settings.handoff), settings.redis)
        self.handoffs = HandoffStore(settings.redis)
        self.running = SessionValue(settings.redis, "running")
        self.places = Places(settings.redis) if settings.gateway.placement == "slack" else None
        self.bad_answers = BadAnswers(history=self.history, store=SessionValue(settings.redis, "bad_answers"))

    async def close(self) -> None:
        async with AsyncExitStack() as closing:
            for part in (self.bad_answers, self.running, self.handoffs, self.quotas, self.history, self.places):
                if part is not None:
                    closing.push_async_callback(part.close)


class Forwarders:
    """Forwards other services' requests from the inbox, and the requests in lanes without workers."""

    def __init__(
        self,
        settings: Settings,
        token_count: TokenCount,
        producer: Producer,
        source: str,
        *,
        admission_gate: AdmissionGate,
        claims: Claims,
    ) -> None:
        kafka = settings.kafka
        router = Router(
            topics=kafka.topics,
            admission_gate=admission_gate,
            claims=claims,
            token_count=token_count,
            defaults=settings.request_defaults,
            source=source,
        )
        inbox, group = kafka.topics.inbox, f"{kafka.topic_prefix}replyline-router"
        self._inbox = Forwarding(
            settings, producer, source, name="inbox", topics=[inbox], group=group, copy=router.copy
        )
        self._abandoned = AbandonedLanes(
            settings=settings, producer=producer, admissions=admission_gate.admissions, source=source
        )

    async def start(self, tasks: Tasks) -> None:
        await self._inbox.start(tasks)
        tasks.start(self._abandoned.watch(tasks), "abandoned lanes")

    async def leave(self, tasks: Tasks) -> None:
        """Leave requests that are not forwarded yet to the other gateways."""
        await tasks.cancel("abandoned lanes")
        await self._abandoned.leave(tasks)
        await self._inbox.leave(tasks)


@dataclass(kw_only=True)
class Serving:
    """The parts that serve a gateway's clients. They share one table of open requests and one of connections."""

    limits: AdmissionLimits
    token_count: TokenCount
    faq: LiveFaq
    policy: AnswerPolicy
    history: History
    publisher: RequestPublisher
    admission_gate: AdmissionGate
    rate_limits: RateLimits
    jwks: Jwks | None
    key: CursorKey
    recall: Recall
    people: People
    tracer: Tracer
    shadowing: Shadowing
    observing: Observing
    claims: Claims
    inflight: InflightTable
    connections: Connections = field(init=False, default_factory=Connections)
    _beside: Tasks = field(init=False, default_factory=lambda: Tasks(task_failed))

    def __post_init__(self) -> None:
        self.answering = Answering(
            inflight=self.inflight,
            connections=self.connections,
            publisher=self.publisher,
            admission_gate=self.admission_gate,
            recall=self.recall,
            faq=self.faq,
            policy=self.policy,
            history=self.history,
            beside=self._beside,
            on_end=self._on_end(),
            language_of=self.people.answers.language_of,
        )
        self.sending = Sending(
            token_count=self.token_count,
            quotas=self.rate_limits.quotas,
            people=self.people,
            admission_gate=self.admission_gate,
            claims=self.claims,
            publisher=self.publisher,
            answering=self.answering,
            shadowing=self.shadowing,
        )
        self.talking = Talking(
            log=self.people.log,
            people=self.people,
            inflight=self.inflight,
            connections=self.connections,
            answering=self.answering,
            claims=self.claims,
            history=self.history,
            beside=self._beside,
        )
        self.receiving = Receiving(
            inflight=self.inflight,
            connections=self.connections,
            admission_gate=self.admission_gate,
            tracer=self.tracer,
            sending=self.sending,
            answering=self.answering,
        )
        self.deadlines = Deadlines(due_times=DueTimes(self.inflight), answering=self.answering)
        self.erasing = Erasing(
            history=self.history,
            publisher=self.publisher,
            inflight=self.inflight,
            answering=self.answering,
            people=self.people,
            beside=self._beside,
        )
        self.gateway = self._make_gateway()

    def _on_end(self) -> tuple[Callable[[Entry, Response], object], ...]:
        """Return the functions to call for each ended answer: they release its resources and count it."""
        gate = self.admission_gate
        return (
            lambda entry, _: gate.admissions.release(entry.response_id),
            self._release_claim,
            lambda entry, _: self.recall.leave(entry),
            count_answer,
            lambda entry, response: count_judged(entry, response, gate.admissions.demand),
            lambda entry, response: gate.report.count_answer(entry.publication.destination, response),
            lambda entry, response: self.people.note_answer(entry, response, self.connections.of(entry)),
            self.tracer.finish,
            self.shadowing.end,
            self.observing.end,
        )

    def _release_claim(self, entry: Entry, response: Response) -> None:
        session, name = entry.request.session, entry.response_id
        if entry.publication.published and response.reason in {"client", "person", "internal"}:
            self.claims.leave_to_worker(session, name, entry.request.deadline.deadline_unix_ms)
        else:
            self.claims.release(session, name)
        if becomes_turn(response):
            self.claims.note_turn(session, name, entry.request.generation)

    def _make_gateway(self) -> Gateway:
        asking = Asking(
            limits=self.limits,
            inflight=self.inflight,
            connections=self.connections,
            talking=self.talking,
            tracer=self.tracer,
            deadlines=self.deadlines,
            sending=self.sending,
            answering=self.answering,
        )
        resuming = Resuming(
            key=self.key,
            max_inflight=self.limits.max_inflight,
            recall=self.recall,
            inflight=self.inflight,
            connections=self.connections,
            people=self.people,
            tracer=self.tracer,
            answering=self.answering,
            receiving=self.receiving,
            erasing=self.erasing,
            deadlines=self.deadlines,
            claims=self.claims,
            talking=self.talking,
        )
        return Gateway(
            rate_limits=self.rate_limits,
            jwks=self.jwks,
            inflight=self.inflight,
            connections=self.connections,
            people=self.people,
            resuming=resuming,
            asking=asking,
            erasing=self.erasing,
        )

    async def idle(self) -> None:
        """Wait until no request is open."""
        while len(self.inflight) or len(self._beside) or len(self.people):  # noqa: ASYNC110 - called once, at shutdown
            await asyncio.sleep(_IDLE_POLL_S)
