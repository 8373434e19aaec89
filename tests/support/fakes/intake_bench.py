"""A worker's intake, fed by hand: its reader, what it hands records to, and where it puts them aside."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import Outgoing, Record
from shared.records.dead_letters import DeadLetters
from shared.records.deliveries import Partition
from shared.records.offsets import OffsetTracker
from shared.settings import Settings
from shared.wire.messages import ReplyDone
from shared.wire.requests import Order
from shared.wire.session_key import SessionKey
from shared.wire.topics import BUCKETS, TopicNames
from tests.support.fakes.gateways import quiet
from workers.intake.reader import Intake
from workers.request.recent_cancels import RecentCancels
from workers.request.reply_publisher import Target

TOPICS = TopicNames()
SHORT, LONG = TOPICS.requests("short"), TOPICS.requests("long")
TOO_LONG = ProtocolError("input_too_long", "the input has 9 tokens, 8 are allowed", param="input")


@dataclass
class Reader:
    topics: list[str] = field(default_factory=lambda: [TOPICS.requests(bucket) for bucket in BUCKETS])
    revoked: list[Partition] = field(default_factory=list)
    lost: list[Partition] = field(default_factory=list)
    at_rest: Collection[str] = ()

    def rest(self, topics: Collection[str]) -> None:
        self.at_rest = topics

    def take_revoked(self) -> list[Partition]:
        return self.revoked

    def take_lost(self) -> list[Partition]:
        return self.lost


@dataclass
class Worker:
    """`looks` is how often it says that an earlier answer is leaving still; `known` are records that became jobs.
    `told` are the ends of what is refused: each is acknowledged by the test."""

    max_waiting: int = 8
    answered: list[tuple[Target, ReplyDone, tuple[Partition, int]]] = field(default_factory=list)
    known: Collection[tuple[Partition, int]] = ()
    looks: float = 0
    erased: list[tuple[SessionKey, int]] = field(default_factory=list)
    told: list[tuple[Target, ReplyDone, "asyncio.Future[None]"]] = field(default_factory=list)

    def erase(self, session: SessionKey, generation: int) -> None:
        self.erased.append((session, generation))

    def leaving(self, _request_id: str, _origin: tuple[Partition, int]) -> bool:
        self.looks -= 1
        return self.looks >= 0

    def repeated(self, _order: Order, _origin: tuple[Partition, int]) -> bool:
        """Joined, where it is still there."""
        return self.looks >= 0

    def answer_unread(self, target: Target, done: ReplyDone, origin: tuple[Partition, int]) -> bool:
        if origin in self.known:
            return False
        self.answered.append((target, done, origin))
        return True

    def refuse(self, target: Target, done: ReplyDone) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.told.append((target, done, future))
        return future


@dataclass
class Preparer:
    """Questions that are refused by what they say; nothing comes of others. `forgotten` is what was encoded of them."""

    begun: list[str] = field(default_factory=list)
    forgotten: list[SessionKey] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.prompts = self.encoded_turns = self

    def forget(self, session: SessionKey) -> None:
        self.forgotten.append(session)

    async def prepare(self, order: Order, now_unix_ms: float) -> None:
        self.begun.append(order.request.id)
        error = {"long": TOO_LONG, "fault": ZeroDivisionError("my card is 4111")}.get(order.request.input)
        if error is not None:
            raise error
        await asyncio.Event().wait()


@dataclass
class Commits:
    """Every delivery is noted at once, as the one of this `number`; None: its partition has gone."""

    number: int | None = 1

    async def begin(self, *_: object) -> int | None:
        return self.number


@dataclass
class Producer:
    """Takes a dead letter unless it is `away`."""

    away: bool = False
    letters: list[Outgoing] = field(default_factory=list)
    tries: int = 0

    async def publish(self, record: Outgoing) -> None:
        self.tries += 1
        await asyncio.sleep(0)
        if self.away:
            raise BrokerUnavailable("no leader")
        self.letters.append(record)


@dataclass
class Bench:
    producer: Producer = field(default_factory=Producer)
    worker: Worker = field(default_factory=Worker)
    commits: Commits = field(default_factory=Commits)
    reader: Reader = field(default_factory=Reader)
    preparer: Preparer = field(default_factory=Preparer)
    offsets: OffsetTracker = field(default_factory=OffsetTracker)
    intake: Intake = field(init=False)

    def __post_init__(self) -> None:
        fakes: dict[str, Any] = {name: getattr(self, name) for name in ("commits", "preparer", "reader", "worker")}
        producer: Any = self.producer
        self.intake = Intake(
            letters=DeadLetters(producer, TOPICS),
            topics=TOPICS,
            defaults=Settings().request_defaults,
            offsets=self.offsets,
            cancelled=RecentCancels(),
            **fakes,
        )

    async def take(self, *values: bytes) -> None:
        first = self.offsets.num_open
        self.intake._sort([Record(SHORT, 0, first + at, b"k", value) for at, value in enumerate(values)])
        self.intake._begin_what_fits()
        await quiet()

    @property
    def parked(self) -> int:
        return self.intake._lookahead.num_parked

    @property
    def done(self) -> bool:
        return bool(self.offsets.committable())
