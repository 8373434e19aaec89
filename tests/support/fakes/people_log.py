"""The log `chat.people` of several gateways: each reads it in the order in which it was written, when it gets to it."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from gateway.people.people_log import PeopleLog
from shared.errors import BrokerUnavailable
from shared.kafka import Outgoing, Record
from shared.wire.codec import decode_people, msgpack_encode
from shared.wire.messages import PeopleMove, PeopleRecord, PeopleSaid
from tests.support.fakes.gateway_services import FakeProducer
from tests.support.fakes.gateways import TOPICS, Edge


@dataclass
class PeopleTopic:
    """`held`: the gateways that do not read it now."""

    records: list[Record] = field(default_factory=list)
    readers: list[Edge] = field(default_factory=list)
    held: set[int] = field(default_factory=set)
    away: bool = False

    def gateway(self, **options: Any) -> Edge:
        """Return another gateway, which has read all that was written before."""
        number = len(self.readers)
        edge = Edge(producer=PeopleProducer(topic=self), partition=number, **options)
        self.readers.append(edge)
        self.read(edge)
        return edge

    def write(self, record: PeopleRecord | Outgoing) -> int:
        value = record.value if isinstance(record, Outgoing) else msgpack_encode(record)
        at = len(self.records)
        self.records.append(Record(TOPICS.people, 0, at, None, value, arrived_unix_ms=1_800_000_000_000 + at * 1_000))
        for number, edge in enumerate(self.readers):
            if number not in self.held:
                self.read(edge)
        return at

    def read(self, edge: Edge) -> None:
        """Let a gateway read to the end."""
        talking = edge.serving.talking
        for record in self.records[talking.log.talks.position :]:
            talking.apply(decode_people(record.value), record)

    def moves(self) -> list[PeopleMove]:
        return [each for each in self.decoded() if isinstance(each, PeopleMove)]

    def said(self) -> list[PeopleSaid]:
        return [each for each in self.decoded() if isinstance(each, PeopleSaid)]

    def decoded(self) -> list[PeopleRecord]:
        return [decode_people(record.value) for record in self.records]


@dataclass
class PeopleProducer(FakeProducer):
    topic: PeopleTopic = field(default_factory=PeopleTopic)

    async def publish(self, record: Outgoing) -> tuple[int, int]:
        if record.topic != TOPICS.people:
            return await super().publish(record)
        await asyncio.sleep(0)
        if self.topic.away:
            raise BrokerUnavailable("away")
        self.published.append(record)
        return 0, self.topic.write(record)


def idle_log() -> PeopleLog:
    """Return the log of a gateway without people."""
    producer: Any = FakeProducer()
    log = PeopleLog(producer=producer, topics=TOPICS)
    log.loaded.set()
    return log
