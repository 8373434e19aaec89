"""Two gateways and a worker as they are, but for what is at their edges: sockets, Kafka, Redis, the model, the time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from websockets.protocol import State

from gateway.admission.control import Admission, AdmissionLimits, AdmissionPolicy
from gateway.frontends.websocket import WebSocketFrontend
from gateway.kafka.log_follower import LogFollower
from gateway.kafka.question_reader import QuestionReader
from gateway.kafka.reply_consumer import consume_replies
from gateway.kafka.request_publisher import RequestPublisher
from gateway.people.handoffs import Handoffs
from gateway.people.people import People
from gateway.request.cursor import CursorKey
from gateway.router import Router
from gateway.serving.admission_gate import AdmissionGate
from gateway.serving.gateway import Gateway
from gateway.serving.memory_watch import MemoryWatch
from gateway.session.protocol import SessionLimits
from gateway.session.rate_limits import RateLimits
from gateway.session.resumption import Resumption
from shared.conversation.erasure_reader import read_erasures
from shared.faq import FaqEntry, FaqIndex
from shared.faq.answer_policy import AnswerPolicy, Thresholds
from shared.records.commits import Commits
from shared.records.dead_letters import DeadLetters
from shared.records.offsets import OffsetTracker
from shared.settings import Settings
from shared.settings.gateway import GatewaySettings, HandoffSettings
from shared.wire.messages import Erase, Limits
from shared.wire.requests import Defaults
from shared.wire.topics import TopicNames
from tests.support.fakes.gateways import FakeQuotas
from tests.support.fakes.memory_kafka import Broker, BrokerGroup, BrokerLog, BrokerProducer
from tests.support.fakes.memory_redis import HandoffRedis, KvMemory, Redis
from tests.support.samples.prompts import BYTE_0, TEMPLATE, TOKENIZER
from workers.engine.fake import FakeEngine
from workers.intake.cancels import read_cancels
from workers.intake.prepare import Preparer
from workers.intake.reader import Intake
from workers.prompt.conversation import PromptBuilder
from workers.request.recent_cancels import RecentCancels
from workers.request.reply_publisher import ReplyPublisher
from workers.schedule.costs import CostModel
from workers.schedule.lengths import OutputLengths
from workers.schedule.policies import build_scheduler
from workers.schedule.scheduler import SchedulerLimits
from workers.serving.worker import Worker

TOPICS: Final = TopicNames()
SLOTS: Final = 4
MINUTE_MS: Final = 60_000
STEP_S: Final = 0.02
_LINES: Final = [BYTE_0 + byte for byte in b"ab\n"]
_SETTINGS: Final = Settings()
_RETURNS: Final = FaqEntry(
    id="returns",
    topic="t",
    language="en",
    question="How do I return an item?",
    alternatives=(),
    answer="Send it back within 30 days.",
)
_INDEX: Final = FaqIndex([_RETURNS])
_ANNOUNCED: Final = Limits(
    max_message_bytes=65_536,
    max_input_tokens=1_024,
    max_output_tokens=512,
    max_inflight=4,
    messages_per_minute=600,
    first_token_ms=MINUTE_MS,
    deadline_ms=MINUTE_MS,
)


# --- the edges


class Protocol:
    """Frames of a socket that is open."""

    def __init__(self) -> None:
        self.state = State.OPEN
        self.sent: list[bytes] = []

    def send_text(self, payload: bytes) -> None:
        self.sent.append(payload)

    def data_to_send(self) -> list[bytes]:
        return []


class Transport:
    def write(self, data: bytes) -> None: ...

    def abort(self) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0


class Socket:
    """Its client takes all at once."""

    subprotocol = "chat.v1.json"
    remote_address = ("127.0.0.1", 50_000)
    request = None

    def __init__(self) -> None:
        self.protocol = Protocol()
        self.transport = Transport()
        self.is_told = False
        self._said: asyncio.Queue[str | None] = asyncio.Queue()

    def say(self, text: str) -> None:
        self._said.put_nowait(text)

    def lose(self) -> None:
        self.protocol.state = State.CLOSED
        self._said.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[str]:
        while (text := await self._said.get()) is not None:
            yield text

    async def close(self, code: int, reason: str) -> None:
        del code, reason
        await asyncio.sleep(0)
        self.lose()

    async def wait_closed(self) -> None:
        await asyncio.sleep(0)


@dataclass(repr=False)
class Faq:
    index: FaqIndex = _INDEX

    async def vector_of(self, text: str) -> None:
        del text


# --- the processes


@dataclass(repr=False)
class Shop:
    """Begun within a loop whose time is its own."""

    broker: Broker = field(default_factory=Broker)
    redis: Redis = field(default_factory=Redis)
    faq: Any = field(default_factory=Faq)
    frontends: list[WebSocketFrontend] = field(default_factory=list)
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    worker: Worker = field(init=False)
    requests: BrokerGroup = field(init=False)
    inbox: BrokerGroup = field(init=False)
    defaults: Defaults = field(default_factory=lambda: _SETTINGS.request_defaults)

    def begin(self) -> None:
        self._begin_worker()
        for partition in (0, 1):
            self._begin_gateway(partition)
        self._begin_router()

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def _start(self, name: str, work: Any) -> None:
        self.tasks.append(asyncio.create_task(work, name=name))

    def _start_erasures(self, erased: Callable[[Erase], None]) -> None:
        log: Any = BrokerLog(self.broker, (TOPICS.erasures, 0))
        self._start("erasures", read_erasures(log, erased))

    def _begin_gateway(self, partition: int) -> None:
        producer: Any = BrokerProducer(self.broker)
        replies: Any = BrokerLog(self.broker, (TOPICS.replies, partition))
        log: Any = lambda number: BrokerLog(self.broker, (TOPICS.replies, number))  # noqa: E731
        question: Any = lambda bucket, number: BrokerLog(self.broker, (TOPICS.requests(bucket), number))  # noqa: E731
        quotas: Any = FakeQuotas()
        edges: dict[str, Any] = {"history": self.redis, "rate_limits": RateLimits(quotas=quotas)}
        stores: dict[str, Any] = {"store": HandoffRedis()}
        follower = LogFollower(log)
        publisher = RequestPublisher(
            producer=producer,
            topics=TOPICS,
            defaults=self.defaults,
            reply_partition=partition,
            source=f"gateway-{partition}",
            away=lambda: False,
        )
        gateway = Gateway(
            limits=AdmissionLimits(
                max_input_tokens=1_000,
                max_inflight=100,
                max_inflight_per_connection=4,
                first_token_ms=MINUTE_MS,
                deadline_ms=MINUTE_MS,
                max_deadline_ms=2 * MINUTE_MS,
            ),
            tokenizer=TOKENIZER,
            faq=self.faq,
            min_score=0.25,
            publisher=publisher,
            admission_gate=AdmissionGate(Admission(AdmissionPolicy(enabled=False))),
            resumption=Resumption(
                key=CursorKey(b"secret"),
                adopt=publisher.adopt,
                follower=follower,
                question_reader=QuestionReader(question),
                partition=partition,
                next_offset=lambda: replies.at,
                max_inflight=100,
            ),
            people=People(
                settings=HandoffSettings(enabled=True),
                handoffs=Handoffs(
                    producer=producer,
                    topic=TOPICS.handoffs,
                    open_s=3_600,
                    source=f"gateway-{partition}",
                    quotas=quotas,
                    **stores,
                ),
                quotas=quotas,
            ),
            **edges,
        )
        follower.replied = gateway.replied
        unused: dict[str, Any] = {"files": None}
        frontend = WebSocketFrontend(
            gateway=gateway,
            settings=GatewaySettings(),
            session_limits=SessionLimits(
                hello_timeout_ms=5_000,
                heartbeat_ms=25_000,
                messages_per_minute=600,
                announced=_ANNOUNCED,
                handoff=True,
            ),
            tenant="demo",
            gate=None,
            memory=MemoryWatch(),
            **unused,
        )
        self.frontends.append(frontend)
        self._start("replies", consume_replies(replies, gateway.replied))
        self._start_erasures(gateway.erased)
        self._start("sweep", frontend.sweep())
        self._start("relieve", frontend.relieve())

    def _begin_router(self) -> None:
        producer: Any = BrokerProducer(self.broker)
        self.inbox = BrokerGroup(self.broker, [TOPICS.inbox])
        reader: Any = self.inbox
        offsets = OffsetTracker()
        commits = Commits(reader, offsets)
        router = Router(
            reader=reader,
            producer=producer,
            letters=DeadLetters(producer, TOPICS),
            topics=TOPICS,
            tokenizer=TOKENIZER,
            defaults=self.defaults,
            max_input_tokens=1_000,
            source="gateway-0",
            offsets=offsets,
            commits=commits,
        )
        self._start("router", router.run())
        self._start("routed", commits.run())

    def _begin_worker(self) -> None:
        producer: Any = BrokerProducer(self.broker)
        self.requests = BrokerGroup(self.broker, [TOPICS.requests("short")])
        reader: Any = self.requests
        kv: Any = KvMemory()
        redis: Any = self.redis
        offsets, costs, cancelled = OffsetTracker(), CostModel.prior(), RecentCancels()
        engine = FakeEngine(num_slots=SLOTS, max_length=1_024, vocabulary=_LINES)
        limits = SchedulerLimits(
            num_slots=SLOTS,
            prefill_chunk_tokens=128,
            max_prefill_rows=2,
            stop_token_ids=engine.info.stop_token_ids,
            reuse_kv=True,
        )
        commits, publisher = Commits(reader, offsets), ReplyPublisher(producer)
        self.worker = Worker(
            engine=engine,
            scheduler=build_scheduler(limits=limits, costs=costs, lengths=OutputLengths()),
            costs=costs,
            publisher=publisher,
            history=redis,
            offsets=offsets,
            topics=TOPICS,
            max_waiting=16,
            reply_interval_s=0.0,
            kv=kv,
        )
        self.worker.engine_loop.tell = self.worker.hear
        publisher.settled = self.worker.settled
        preparer = Preparer(
            settings=_SETTINGS.worker,
            tokenizer=TOKENIZER,
            prompts=PromptBuilder(TEMPLATE, system="S", most_turns=5),
            faq=self.faq,
            policy=AnswerPolicy(thresholds=Thresholds(confident=0.6, weak=0.3), languages=("en",), handoff=True),
            guarded=True,
            min_score=0.25,
            history=redis,
            max_length=1_024,
            kv=kv,
            standing=self.worker.engine_loop.standing,
        )
        intake = Intake(
            reader=reader,
            letters=DeadLetters(producer, TOPICS),
            topics=TOPICS,
            preparer=preparer,
            defaults=self.defaults,
            offsets=offsets,
            commits=commits,
            worker=self.worker,
            cancelled=cancelled,
        )
        cancels: Any = BrokerLog(self.broker, (TOPICS.cancels, 0))
        reading = read_cancels(
            cancels,
            partitions=lambda: None,
            answered=tuple,
            cancel=self.worker.cancel,
            cancelled=cancelled,
            adopt=self.worker.adopt,
        )
        self._start("cancels", reading)
        self._start_erasures(intake.erase)
        self._start("lanes", publisher.watch())
        self._start("intake", intake.run())
        self._start("commits", commits.run())
        self._start("engine", self._compute())

    async def _compute(self) -> None:
        """What the engine's thread does, a step every so often. What a step raises ends the process."""
        while True:
            self.worker.engine_loop.turn()
            await asyncio.sleep(STEP_S)
