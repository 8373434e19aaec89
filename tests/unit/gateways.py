"""A gateway without its services: what Kafka, Redis and clients would hear is kept, and time is the test's."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from msgspec import msgpack
from sessions import new

from gateway.admission import Admission, AdmissionLimits, AdmissionPolicy
from gateway.care import Care
from gateway.charges import Caller, Kind
from gateway.cursor import CursorKey, Place, Seal, Told
from gateway.entry import Item
from gateway.gatekeeper import Gatekeeper
from gateway.gateway import Gateway
from gateway.handoffs import Outcome
from gateway.metering import Metering
from gateway.outbox import Outbox
from gateway.request_publisher import RequestPublisher
from gateway.resumption import Resumption
from gateway.session import Session
from shared.errors import ProtocolError
from shared.fallback import DEFAULT_MIN_SCORE
from shared.faq.live import LiveFaq
from shared.gateway_settings import AdmissionSettings, HandoffSettings
from shared.kafka import Outgoing
from shared.messages import (
    Cancel,
    ClientMessage,
    Erase,
    HandoffReason,
    Reply,
    ReplyDelta,
    ReplyDone,
    Response,
    ResponseDone,
    ServerMessage,
    Timings,
    Usage,
)
from shared.requests import Defaults
from shared.settings import Settings
from shared.tokenizer import Tokenizer
from shared.topics import BucketEdges, TopicNames
from shared.turn import Turn

TOPICS = TopicNames()
MINUTE_MS = 60_000


async def quiet() -> None:
    """Let every task run until it waits."""
    for _ in range(50):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object], *, limit_s: float = 5.0) -> None:
    """Let the loop's timers run until it is so."""
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0)


@dataclass
class FakeProducer:
    published: list[Outgoing] = field(default_factory=list)

    async def publish(self, record: Outgoing) -> tuple[int, int]:
        await asyncio.sleep(0)
        self.published.append(record)
        return 0, len(self.published)

    async def enqueue(self, record: Outgoing) -> None:
        self.published.append(record)

    def of(self, topic: str) -> list[Outgoing]:
        return [record for record in self.published if record.topic == topic]


@dataclass
class FakeHistory:
    """Redis: what was erased until when, by any gateway."""

    erased_unix_ms: float = 0.0
    remembered: list[Turn] = field(default_factory=list)

    async def erased_since(self, tenant: str, session_id: str, asked_unix_ms: float) -> bool:
        await asyncio.sleep(0)
        return self.erased_unix_ms >= int(asked_unix_ms)

    async def delete(self, tenant: str, session_id: str, *, asked_unix_ms: float) -> None:
        await asyncio.sleep(0)
        self.erased_unix_ms = asked_unix_ms

    def remember(self, tenant: str, session_id: str, turn: Turn) -> None:
        self.remembered.append(turn)


@dataclass
class FakeQuotas:
    """What was charged, here and at all gateways; of what is `used_up` no more may be had."""

    used_up: set[Kind] = field(default_factory=set)
    here: list[tuple[Kind, Caller]] = field(default_factory=list)
    shared: list[tuple[Kind, Caller]] = field(default_factory=list)
    handoffs: list[tuple[str, HandoffReason]] = field(default_factory=list)
    handoffs_left: int = 1_000

    def take_here(self, kind: Kind, caller: Caller) -> None:
        if kind in self.used_up:
            raise too_often()
        self.here.append((kind, caller))

    async def take_shared(self, kind: Kind, caller: Caller) -> None:
        await asyncio.sleep(0)
        self.shared.append((kind, caller))

    async def take(self, kind: Kind, caller: Caller) -> None:
        self.take_here(kind, caller)
        await self.take_shared(kind, caller)

    async def take_handoff(self, tenant: str, reason: HandoffReason) -> None:
        await asyncio.sleep(0)
        if len(self.handoffs) >= self.handoffs_left:
            raise too_often()
        self.handoffs.append((tenant, reason))


def too_often() -> ProtocolError:
    return ProtocolError("rate_limited", "too often", kind="rate_limit_error", retriable=True, retry_after_ms=9)


class FakeHandoffs:
    async def open(self, *_: object) -> Outcome:
        await asyncio.sleep(0)
        return Outcome(None)

    def forget(self, tenant: str, session_id: str) -> None:
        """Nobody was asked."""


class FakeFollower:
    """Another gateway's log, in which there `stands` this."""

    def __init__(self) -> None:
        self.stands: list[Reply] = []
        self.replied: Callable[[list[Reply]], None] = lambda _: None

    async def join(self, place: Place, session_id: str, response_id: str) -> None:
        await asyncio.sleep(0)
        self.replied(self.stands)

    def leave(self, partition: int, response_id: str) -> None: ...


class FakeQuestions:
    """Topics in which there `stands` this of each question; `come` is when it has been looked for."""

    def __init__(self) -> None:
        self.stands = ""
        self.come = asyncio.Event()
        self.come.set()

    def ask(self, *_: object) -> "asyncio.Future[str]":
        return asyncio.ensure_future(self._look())

    async def _look(self) -> str:
        await self.come.wait()
        return self.stands


@dataclass
class FakeConnection:
    """A client that takes all at once."""

    gateway: Gateway
    session: Session
    num_inflight: int = 0
    heard: list[ServerMessage] = field(default_factory=list)
    closes: list[int] = field(default_factory=list)
    _outbox: Outbox = field(default_factory=Outbox)

    def begin(self, seal: Seal, told: Iterable[Told]) -> None:
        self._outbox.begin(seal, told)

    def put(self, item: ServerMessage | Item) -> None:
        self._outbox.put(item)

    def flush(self) -> None:
        self.heard += self._outbox.take()

    def close(self, code: int, reason: str) -> None:
        self.flush()
        self.closes.append(code)

    async def say(self, *messages: ClientMessage) -> Self:
        """One after the other, in one breath."""
        for message in messages:
            await self.gateway.received(self, message)
        return self

    def lose(self) -> None:
        self.gateway.closed(self)

    @property
    def cursor(self) -> str:
        """The last one."""
        return [cursor for message in self.heard if (cursor := getattr(message, "cursor", None))][-1]

    @property
    def ends(self) -> list[Response]:
        return [message.response for message in self.heard if isinstance(message, ResponseDone)]


@dataclass
class Edge:
    producer: FakeProducer = field(default_factory=FakeProducer)
    history: FakeHistory = field(default_factory=FakeHistory)
    follower: FakeFollower = field(default_factory=FakeFollower)
    questions: FakeQuestions = field(default_factory=FakeQuestions)
    quotas: FakeQuotas = field(default_factory=FakeQuotas)
    kafka_is_away: bool = False
    people: bool = False
    gateway: Gateway = field(init=False)
    _numbers: int = 0

    def __post_init__(self) -> None:
        settings = Settings(admission=AdmissionSettings(enabled=False))
        quotas: Any = self.quotas
        fakes: dict[str, Any] = {"history": self.history, "metering": Metering(quotas=quotas)}
        producer: Any = self.producer
        follower: Any = self.follower
        questions: Any = self.questions
        nobody: Any = FakeHandoffs()
        self.gateway = Gateway(
            limits=AdmissionLimits(
                max_input_tokens=1_000,
                max_inflight=100,
                max_inflight_per_connection=4,
                first_token_ms=MINUTE_MS,
                deadline_ms=MINUTE_MS,
                max_deadline_ms=2 * MINUTE_MS,
            ),
            edges=BucketEdges(short_max_tokens=64, medium_max_tokens=256),
            tokenizer=Tokenizer.byte_level(),
            faq=LiveFaq(settings.faq),
            min_score=DEFAULT_MIN_SCORE,
            publisher=RequestPublisher(
                producer=producer,
                topics=TOPICS,
                defaults=Defaults.of(settings),
                reply_partition=0,
                source="gateway-0",
                away=lambda: self.kafka_is_away,
            ),
            gatekeeper=Gatekeeper(Admission(AdmissionPolicy.of(settings))),
            resumption=Resumption(
                key=CursorKey(b"secret"),
                follower=follower,
                questions=questions,
                partition=0,
                next_offset=lambda: 0,
                max_inflight=100,
            ),
            care=Care(settings=HandoffSettings(enabled=self.people), handoffs=nobody, quotas=quotas),
            **fakes,
        )
        self.follower.replied = self.gateway.replied

    def connect(self) -> FakeConnection:
        session = new()
        self._numbers += 1
        session.connection_id = f"conn_{self._numbers}"
        connection = FakeConnection(self.gateway, session)
        self.gateway.opened(connection)
        return connection

    @property
    def cancelled(self) -> list[str]:
        """The requests that workers were told to stop."""
        told = [msgpack.decode(record.value or b"", type=Cancel | Erase) for record in self.producer.of(TOPICS.cancels)]
        return [each.request_id for each in told if isinstance(each, Cancel)]


def delta(request_id: str, text: str, offset: int = 0) -> ReplyDelta:
    return ReplyDelta(request_id=request_id, session_id="s", attempt=0, seq=0, offset=offset, delta=text)


def done(request_id: str, text: str) -> ReplyDone:
    return ReplyDone(
        request_id=request_id,
        session_id="s",
        attempt=0,
        status="completed",
        reason="stop",
        source="model",
        output_text=text,
        usage=Usage(),
        timings=Timings(),
    )
