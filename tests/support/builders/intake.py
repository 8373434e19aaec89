"""An intake that is fed by hand, and all that it speaks to."""

import asyncio
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import Outgoing, Record
from shared.records.dead_letters import DeadLetters
from shared.records.deliveries import Partition
from shared.records.offsets import OffsetTracker
from shared.settings import Settings
from shared.wire.messages import ReplyDone
from shared.wire.requests import Order, Target
from shared.wire.topics import BUCKETS
from tests.support.builders.worker import SHORT, TOPIC, TOPICS
from workers.intake.reader import Intake
from workers.request.recent_answers import RecentCancels


@dataclass
class IntakeBench:
    """An intake whose inputs the test supplies; this object is also all its collaborators. Deliveries are recorded
    immediately. Questions are refused according to their text; other records have no effect. The worker reports `looks`
    times that an earlier answer is still leaving; `known` are records that became jobs. No dead letter is accepted
    while Kafka is `away`."""

    away: bool = False
    looks: float = 0
    known: Collection[tuple[Partition, int]] = ()
    offsets: OffsetTracker = field(default_factory=OffsetTracker)

    def __post_init__(self) -> None:
        self.revoked, self.lost = list[Partition](), list[Partition]()
        self.at_rest: Collection[str] = ()
        self.answered: list[tuple[Target, ReplyDone, tuple[Partition, int]]] = []
        self.begun = list[str]()
        self.orders = list[Order]()
        self.letters = list[Outgoing]()
        self.max_waiting = 8
        self.topics = [TOPICS.requests(bucket) for bucket in BUCKETS]
        myself: Any = self
        self.unread = myself
        self.intake = Intake(
            letters=DeadLetters(myself, TOPICS, "worker-1"),
            topics=TOPICS,
            defaults=Settings().request_defaults,
            offsets=self.offsets,
            cancelled=RecentCancels(),
            **dict.fromkeys(("answers", "commits", "reader", "versions", "worker"), myself),
        )

    async def take(self, *values: bytes) -> None:
        first = self.offsets.num_open
        self.intake._sorting.sort([Record(SHORT, 0, first + at, b"k", value) for at, value in enumerate(values)])
        self.intake._begin_what_fits()
        for _ in range(50):
            await asyncio.sleep(0)

    def rebalance(self) -> None:
        """Revoke the short requests' partition, and report that."""
        self.revoked = [TOPIC]
        self.intake._partitions_revoked()

    @property
    def parked(self) -> int:
        return self.intake._lookahead.num_parked

    # --- the reader, the commits and the producer

    def rest(self, topics: Collection[str]) -> None:
        self.at_rest = topics

    def pop_revoked(self) -> list[Partition]:
        return self.revoked

    def pop_lost(self) -> list[Partition]:
        return self.lost

    def pop_passed(self) -> dict[Partition, int]:
        return {}

    async def await_delivery(self, *_: object) -> int:
        return 1

    async def publish(self, record: Outgoing) -> None:
        await asyncio.sleep(0)
        if self.away:
            raise BrokerUnavailable("no leader")
        self.letters.append(record)

    # --- the version that serves

    def for_request(self, *_: object) -> Any:
        return self

    def preparing(self, *_: object) -> AbstractContextManager[None]:
        return nullcontext()

    async def prepare(self, order: Order, now_unix_ms: float) -> None:
        self.begun.append(order.request.id)
        self.orders.append(order)
        if order.request.input == "long":
            raise ProtocolError("input_too_long", "the input has 9 tokens, 8 are allowed", param="input")
        await asyncio.Event().wait()

    # --- the worker

    def is_ending(self, _request_id: str, _origin: tuple[Partition, int]) -> bool:
        self.looks -= 1
        return self.looks >= 0

    def repeated(self, _order: Order, _origin: tuple[Partition, int]) -> bool:
        """Join the earlier answer, if it still exists."""
        return self.looks >= 0

    def answer(self, target: Target, done: ReplyDone, origin: tuple[Partition, int]) -> bool:
        if origin not in self.known:
            self.answered.append((target, done, origin))
        return origin not in self.known

    async def refuse(self, *_: object) -> None:
        await asyncio.sleep(0)
