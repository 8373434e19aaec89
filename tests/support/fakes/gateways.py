"""A gateway without its services: messages to Kafka, Redis and clients are recorded, and the test sets the time."""

import asyncio
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self

import msgspec
from msgspec import msgpack

from gateway.build import Serving
from gateway.destination.admission import AdmissionLimits, AdmissionPolicy
from gateway.destination.claim import Claims
from gateway.destination.count import TokenCount
from gateway.destination.gate import AdmissionGate
from gateway.destination.lanes import LaneAdmissions
from gateway.kafka.request_publisher import RequestPublisher
from gateway.people.people import People
from gateway.people.people_log import PeopleLog
from gateway.request.cursor import CursorKey, ResumePoint, Seal
from gateway.request.entry import Entry, Item
from gateway.request.inflight import InflightTable
from gateway.request.outbox import Outbox
from gateway.serving.gateway import Gateway
from gateway.serving.observing import Observing
from gateway.serving.shadowing import Shadowing
from gateway.session.protocol import Session
from gateway.session.rate_limits import RateLimits
from gateway.session.recall import Recall
from gateway.telemetry.tracer import Tracer
from shared.faq.answer_policy import AnswerPolicy
from shared.faq.live import LiveFaq
from shared.faq.speech.words import WaysOn
from shared.model.tokenizer import Tokenizer
from shared.process.clock import now_unix_ms
from shared.settings import Settings
from shared.settings.gateway import HandoffSettings
from shared.versions.registry import Registry
from shared.versions.state import Move, State
from shared.wire.codec import decode_erase, decode_notice
from shared.wire.lanes import LANES
from shared.wire.messages import (
    Cancel,
    ChatRequest,
    ClientMessage,
    Erase,
    Notice,
    Reply,
    ReplyDelta,
    ReplyDone,
    ResponseDone,
    ServerMessage,
)
from shared.wire.outcome import Response
from shared.wire.session_key import SessionKey
from shared.wire.topics import BUCKETS, TopicNames
from tests.support.builders import wire
from tests.support.fakes.gateway_services import (
    FakeBadAnswers,
    FakeFollower,
    FakeHandoffs,
    FakeHistory,
    FakeProducer,
    FakeQuestions,
    FakeQuotas,
)
from tests.support.fakes.sessions import new

TOPICS = TopicNames()
MINUTE_MS = 60_000


async def quiet() -> None:
    """Let every task run until it waits."""
    for _ in range(50):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object], *, limit_s: float = 5.0) -> None:
    """Let the loop's timers run until it is so."""
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110 - no event signals it
            await asyncio.sleep(0)


# Its bytes do not show how many tokens it has.
LONG = "word " * 100


class SlowTokenizer:
    """`asked` once it is to count, which takes until `counted`."""

    def __init__(self) -> None:
        self.asked, self.counted = threading.Event(), threading.Event()

    def count(self, text: str) -> int:
        self.asked.set()
        assert self.counted.wait(timeout=10)
        return 1


@dataclass
class FakeConnection:
    """A client that reads everything immediately."""

    gateway: Gateway
    session: Session
    num_inflight: int = 0
    heard: list[ServerMessage] = field(default_factory=list)
    closed_with: int | None = None
    _outbox: Outbox = field(default_factory=Outbox)

    def start_session(self, seal: Seal, points: Iterable[ResumePoint], now_unix_ms: float) -> None:
        self._outbox.start_session(seal, points, now_unix_ms)

    def put(self, item: ServerMessage | Item) -> None:
        if self.closed_with is None:
            self._outbox.put(item)

    def drop_answer(self, response_id: str) -> None:
        self._outbox.drop_answer(response_id)

    def flush(self) -> None:
        if self._outbox:
            self.heard += self._outbox.drain(now_unix_ms())

    def close(self, code: int, reason: str) -> None:
        self.flush()
        self.closed_with = self.closed_with or code

    async def say(self, *messages: ClientMessage) -> Self:
        """One after the other, in one breath."""
        for message in messages:
            await self.gateway.receive(self, message)
        return self

    def lose(self) -> None:
        self.gateway.disconnect(self)

    @property
    def cursor(self) -> str:
        """The last one."""
        return [cursor for message in self.heard if (cursor := getattr(message, "cursor", None))][-1]

    @property
    def ends(self) -> list[Response]:
        return [message.response for message in self.heard if isinstance(message, ResponseDone)]


@cache
def shipped_faq() -> LiveFaq:
    return LiveFaq(Settings().faq)


@dataclass
class Edge:
    """A gateway that owns a partition of the replies."""

    producer: FakeProducer = field(default_factory=FakeProducer)
    history: FakeHistory = field(default_factory=FakeHistory)
    follower: Any = field(default_factory=FakeFollower)
    questions: FakeQuestions = field(default_factory=FakeQuestions)
    partition: int = 0
    next_offset: Callable[[], int] = lambda: 0
    quotas: FakeQuotas = field(default_factory=FakeQuotas)
    bad_answers: FakeBadAnswers = field(default_factory=FakeBadAnswers)
    kafka_is_away: bool = False
    people: bool = False
    reached: bool = False  # a person, who is asked
    admits: bool = False  # by the workers' reports
    word_s: float = 0.0
    registry: Registry = field(default_factory=Registry)
    places: Any = None
    serving: Serving = field(init=False)
    gateway: Gateway = field(init=False)
    _numbers: int = 0

    def __post_init__(self) -> None:
        quotas: Any = self.quotas
        fakes: dict[str, Any] = {"history": self.history, "rate_limits": RateLimits(quotas=quotas), "jwks": None}
        producer: Any = self.producer
        questions: Any = self.questions
        nobody: Any = FakeHandoffs(opens=self.reached)
        bad_answers: Any = self.bad_answers
        publisher = RequestPublisher(
            producer=producer,
            topics=TOPICS,
            reply_partition=self.partition,
            source=f"gateway-{self.partition}",
            away=lambda: self.kafka_is_away,
            next_offset=self.next_offset,
        )
        admissions = LaneAdmissions(AdmissionPolicy(enabled=self.admits, worker_ttl_ms=MINUTE_MS))
        inflight = InflightTable()
        observing = Observing(producer=producer, topic=TOPICS.observations, state=lambda: admission_gate.state)
        claims = Claims(
            places=self.places,
            producer=producer,
            topics=TOPICS,
            is_open=lambda name: inflight.get(name) is not None,
            has_ended=inflight.has_ended,
            generation=lambda session: self.serving.erasing.known_generation(session, now_unix_ms()),
        )
        admission_gate = AdmissionGate(admissions, registry=self.registry, partition_of=claims.partition_of)
        limits = AdmissionLimits(
            max_inflight=100,
            max_inflight_per_connection=4,
            first_token_ms=MINUTE_MS,
            deadline_ms=MINUTE_MS,
            max_deadline_ms=2 * MINUTE_MS,
        )
        log = PeopleLog(producer=producer, topics=TOPICS)
        log.loaded.set()
        self.serving = Serving(
            limits=limits,
            token_count=TokenCount(Tokenizer.byte_level(), 1_000),
            faq=shipped_faq(),
            policy=AnswerPolicy(languages=(), ways_on=WaysOn(handoff=self.people)),
            publisher=publisher,
            admission_gate=admission_gate,
            claims=claims,
            inflight=inflight,
            key=CursorKey(b"secret"),
            recall=Recall(
                adopt=publisher.adopt,
                topic_of=publisher.topic_of,
                word_s=self.word_s,
                follower=self.follower,
                question_reader=questions,
            ),
            people=People(
                settings=HandoffSettings(enabled=self.people),
                handoffs=nobody,
                quotas=quotas,
                bad_answers=bad_answers,
                log=log,
                history=fakes["history"],
                observe=observing.receive,
            ),
            tracer=Tracer(),
            observing=observing,
            shadowing=Shadowing(
                publisher=publisher,
                producer=producer,
                admission_gate=admission_gate,
            ),
            **fakes,
        )
        self.gateway = self.serving.gateway

    def receive_replies(self, replies: list[Reply]) -> None:
        self.serving.receiving.receive_replies(replies)

    def erased(self, erase: Erase) -> None:
        self.serving.erasing.apply(erase, self.serving.erasing.log.next)

    def move(self, state: State) -> None:
        """Have this state be the registry's next; it may name an epoch."""
        epoch = state.epoch or self.registry.state.epoch + 1
        self.registry.state, state = State(epoch=epoch - 1), msgspec.structs.replace(state, epoch=epoch)
        assert self.registry.apply(Move(state=state, author="t", reason="r", unix_ms=0))

    def connect(self) -> FakeConnection:
        session = new()
        self._numbers += 1
        session.connection_id = f"conn_{self.partition}_{self._numbers}"
        connection = FakeConnection(self.gateway, session)
        self.gateway.connect(connection)
        return connection

    @property
    def asked(self) -> list[ChatRequest]:
        """The requests in Kafka, in their order."""
        topics = {TOPICS.requests(bucket, lane) for bucket in BUCKETS for lane in LANES}
        records = [record for record in self.producer.published if record.topic in topics]
        return [msgpack.decode(record.value or b"", type=ChatRequest) for record in records]

    @property
    def cancelled(self) -> list[str]:
        """The requests whose cancellation was sent to workers."""
        return [told.request_id for told in self.notices if isinstance(told, Cancel)]

    @property
    def notices(self) -> list[Notice]:
        return [decode_notice(record.value) for record in self.producer.of(TOPICS.cancels)]

    @property
    def told_all(self) -> list[Erase]:
        """The erasures sent to every worker and gateway."""
        return [decode_erase(record.value) for record in self.producer.of(TOPICS.erasures)]


def entry_of(edge: Edge, event_id: str) -> Entry:
    found = edge.gateway.inflight.find(SessionKey("demo", "s"), event_id)
    assert found is not None
    return found


def delta(request_id: str, text: str, offset: int = 0, **fields: Any) -> ReplyDelta:
    return wire.delta(text, offset, request_id=request_id, **({"attempt": 0} | fields))


def done(request_id: str, text: str, **fields: Any) -> ReplyDone:
    return wire.done(text, request_id, **({"attempt": 0} | fields))
