"""The wings of a gateway's process: what serves its clients, and what it holds of Kafka and of Redis. Each of these
closes all of its own, whatever fails."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from gateway.access.charges import Tariff
from gateway.access.jwks import Jwks
from gateway.access.quotas import Quotas
from gateway.admission.control import AdmissionLimits
from gateway.forwarding.abandoned import AbandonedLanes
from gateway.forwarding.forwarding import ForwardingWing
from gateway.forwarding.router import Router
from gateway.kafka.log_follower import LogFollower
from gateway.kafka.question_reader import QuestionReader
from gateway.kafka.request_publisher import RequestPublisher
from gateway.outbound.calls import Calls
from gateway.outbound.errands import CarryOut, Errands
from gateway.outbound.handoff_webhook import HandoffWebhook
from gateway.people.bad_answers import BadAnswers
from gateway.people.people import People
from gateway.request.cursor import CursorKey
from gateway.request.due_times import DueTimes
from gateway.request.inflight import InflightTable
from gateway.serving.admission_gate import AdmissionGate
from gateway.serving.answering import Answering
from gateway.serving.asking import Asking
from gateway.serving.deadlines import Deadlines
from gateway.serving.descending import Descending
from gateway.serving.erasing import Erasing
from gateway.serving.gateway import Gateway
from gateway.serving.observing import Observing
from gateway.serving.placing import Placing
from gateway.serving.resuming import Resuming
from gateway.serving.routing import Routing
from gateway.serving.shadowing import Shadowing
from gateway.session.connections import Connections
from gateway.session.rate_limits import RateLimits
from gateway.session.recall import Recall
from gateway.telemetry.tracer import Tracer
from shared.conversation.handoff_store import HandoffStore
from shared.conversation.history import History
from shared.conversation.places import Places
from shared.conversation.session_value import SessionValue
from shared.faq.live import LiveFaq
from shared.kafka import Copies, GroupReader, KafkaWatch, LogReader, PartitionReader, Producer
from shared.model.tokenizer import Tokenizer
from shared.process.tasks import Tasks
from shared.settings import Settings
from shared.telemetry.faults import task_failed
from shared.versions.log import VersionsLog
from shared.wire.topics import BROADCAST_PARTITION

_IDLE_POLL_S: Final = 0.02


@dataclass(kw_only=True)
class ServingWing:
    """The gateway with its parts, which share one table of requests in flight and one of connections."""

    limits: AdmissionLimits
    tokenizer: Tokenizer
    faq: LiveFaq
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
    routing: Routing
    placing: Placing
    inflight: InflightTable = field(init=False, default_factory=InflightTable)
    connections: Connections = field(init=False, default_factory=Connections)
    answering: Answering = field(init=False)
    deadlines: Deadlines = field(init=False)
    erasing: Erasing = field(init=False)
    gateway: Gateway = field(init=False)
    _beside: Tasks = field(init=False, default_factory=lambda: Tasks(task_failed))

    def __post_init__(self) -> None:
        self.answering = self._make_answering()
        self.deadlines = Deadlines(due_times=DueTimes(self.inflight), answering=self.answering)
        self.erasing = Erasing(
            history=self.history,
            publisher=self.publisher,
            inflight=self.inflight,
            answering=self.answering,
            people=self.people,
            beside=self._beside,
        )
        self.gateway = Gateway(
            rate_limits=self.rate_limits,
            jwks=self.jwks,
            inflight=self.inflight,
            connections=self.connections,
            people=self.people,
            observing=self.observing,
            resuming=self._make_resuming(),
            asking=self._make_asking(),
            erasing=self.erasing,
        )

    def _make_answering(self) -> Answering:
        return Answering(
            inflight=self.inflight,
            connections=self.connections,
            publisher=self.publisher,
            admission_gate=self.admission_gate,
            recall=self.recall,
            people=self.people,
            tracer=self.tracer,
            routing=self.routing,
            descending=Descending(publisher=self.publisher, admission_gate=self.admission_gate, routing=self.routing),
            faq=self.faq,
            history=self.history,
            beside=self._beside,
            shadowing=self.shadowing,
            observing=self.observing,
            placing=self.placing,
        )

    def _make_resuming(self) -> Resuming:
        return Resuming(
            key=self.key,
            max_inflight=self.limits.max_inflight,
            recall=self.recall,
            inflight=self.inflight,
            connections=self.connections,
            people=self.people,
            tracer=self.tracer,
            answering=self.answering,
            erasing=self.erasing,
            deadlines=self.deadlines,
            placing=self.placing,
        )

    def _make_asking(self) -> Asking:
        return Asking(
            limits=self.limits,
            tokenizer=self.tokenizer,
            inflight=self.inflight,
            connections=self.connections,
            publisher=self.publisher,
            admission_gate=self.admission_gate,
            routing=self.routing,
            quotas=self.rate_limits.quotas,
            people=self.people,
            tracer=self.tracer,
            answering=self.answering,
            erasing=self.erasing,
            deadlines=self.deadlines,
            shadowing=self.shadowing,
            placing=self.placing,
        )

    async def idle(self) -> None:
        """Wait until no request is in flight."""
        while len(self.inflight) or len(self._beside) or len(self.people):  # noqa: ASYNC110 - asked once in a process's life
            await asyncio.sleep(_IDLE_POLL_S)


class KafkaWing:
    """Kafka's clients, but for the inbox's."""

    def __init__(self, settings: Settings, source: str) -> None:
        kafka, topics, partition = settings.kafka, settings.kafka.topics, settings.gateway.reply_partition
        reader = partial(PartitionReader, kafka, client_id=source)
        log = partial(LogReader, kafka, client_id=source)
        self.producer = Producer(kafka, client_id=source)
        # One of their own: a producer that fails to deliver is replaced, and questions would wait for that.
        self.handoff_producer = Producer(kafka, client_id=f"{source}-handoffs")
        self.side_producer = Producer(kafka, client_id=f"{source}-side")  # of shadows and observations
        self.replies = reader(topic=topics.replies, partitions=[partition])
        self.reports = reader(topic=topics.workers, partitions=[BROADCAST_PARTITION], unhurried=True)
        self.erasures = reader(topic=topics.erasures, partitions=[BROADCAST_PARTITION], unhurried=True)
        self.versions = VersionsLog.of(kafka, client_id=source)
        self.follower = LogFollower(lambda number: log(topic=topics.replies, partition=number))
        self.question_reader = QuestionReader(lambda topic, number: log(topic=topic, partition=number))
        self.copies = Copies(self.producer, kafka)
        self.watch = KafkaWatch(kafka, lambda: self.replies.connected)

    def missing(self) -> str | None:
        """Return why Kafka cannot be used, for `/ready`: a client may ask for a person as soon as that says so."""
        clients = (self.producer, self.handoff_producer, self.replies)
        return None if all(client.connected for client in clients) else self.watch.why

    async def close(self) -> None:
        async with AsyncExitStack() as closing:
            for part in (
                self.side_producer,
                self.handoff_producer,
                self.producer,
                self.erasures,
                self.reports,
                self.replies,
            ):
                closing.push_async_callback(part.stop)
            closing.push_async_callback(self.question_reader.stop)
            closing.push_async_callback(self.follower.stop)
            closing.push_async_callback(self.versions.stop)


class RedisWing:
    """Redis' clients."""

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


class OutboundWing:
    """The help desks that the gateways call: for each the errands of one topic, shared by a group."""

    def __init__(self, settings: Settings, source: str) -> None:
        self._group = partial(GroupReader, settings.kafka, client_id=source, unhurried=True)
        self._prefix = settings.kafka.topic_prefix
        self._calls: list[Calls] = []
        self._errands: list[Errands] = []
        handoff = settings.handoff
        if handoff.webhook_url:
            webhook = HandoffWebhook(
                url=handoff.webhook_url,
                key=handoff.webhook_key(),
                give_up_s=handoff.webhook_give_up_s,
                calls=self.calls({}),
            )
            self.add("webhook", settings.kafka.topics.handoffs, webhook.post)

    def calls(self, headers: Mapping[str, str]) -> Calls:
        """Return what calls a help desk, and is closed with the rest."""
        self._calls.append(Calls(headers))
        return self._calls[-1]

    def add(self, name: str, topic: str, carry_out: CarryOut) -> None:
        reader = self._group(topics=[topic], group=f"{self._prefix}replyline-{name}")
        self._errands.append(Errands(name, reader, carry_out))

    def start(self, tasks: Tasks) -> None:
        for errands in self._errands:
            tasks.start(errands.run(), errands.name)

    async def leave(self, tasks: Tasks) -> None:
        """Leave what is not done to the other gateways."""
        async with AsyncExitStack() as closing:
            for calls in self._calls:
                closing.push_async_callback(calls.close)
            for errands in self._errands:
                await tasks.cancel(errands.name)
                closing.push_async_callback(errands.leave)


class PassingWing:
    """Forwards other services' requests from the inbox, and those that wait in abandoned lanes."""

    def __init__(
        self,
        settings: Settings,
        tokenizer: Tokenizer,
        producer: Producer,
        source: str,
        *,
        routing: Routing,
        placing: Placing,
    ) -> None:
        kafka = settings.kafka
        router = Router(
            topics=kafka.topics,
            routing=routing,
            placing=placing,
            tokenizer=tokenizer,
            defaults=settings.request_defaults,
            max_input_tokens=settings.limits.max_input_tokens,
            source=source,
        )
        inbox, group = kafka.topics.inbox, f"{kafka.topic_prefix}replyline-router"
        self._inbox = ForwardingWing(
            settings, producer, source, name="inbox", topics=[inbox], group=group, copy=router.copy
        )
        self._abandoned = AbandonedLanes(
            settings=settings, producer=producer, admissions=routing.admissions, source=source
        )

    async def start(self, tasks: Tasks) -> None:
        await self._inbox.start(tasks)
        tasks.start(self._abandoned.watch(tasks), "abandoned lanes")

    async def leave(self, tasks: Tasks) -> None:
        """Leave what is not forwarded to the other gateways."""
        await tasks.cancel("abandoned lanes")
        await self._abandoned.leave(tasks)
        await self._inbox.leave(tasks)
