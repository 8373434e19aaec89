"""How far behind a worker is: what the broker has beyond its commits, asked even of partitions that rest."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaTimeoutError
from prometheus_client import REGISTRY

from shared.errors import BrokerUnavailable
from shared.kafka import GroupReader
from shared.settings.kafka import KafkaSettings
from shared.wire.topics import TopicNames
from workers.intake.reader import watch_lag

SHORT, LONG = "chat.requests.short", "chat.requests.long"
S0, S1, L0 = TopicPartition(SHORT, 0), TopicPartition(SHORT, 1), TopicPartition(LONG, 0)


@dataclass
class FakeConsumer:
    """A member with three partitions; nothing was ever committed of `L0`, which it reads from 5 on."""

    ends: dict[TopicPartition, int] = field(default_factory=lambda: {S0: 10, S1: 130, L0: 7})
    away: bool = False

    def assignment(self) -> set[TopicPartition]:
        return set(self.ends)

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        if self.away:
            raise KafkaTimeoutError
        return {partition: self.ends[partition] for partition in partitions}

    async def committed(self, partition: TopicPartition) -> int | None:
        return {S0: 10, S1: 30}.get(partition)

    async def position(self, partition: TopicPartition) -> int:
        assert partition == L0, "of the others the commit counts"
        return 5


def reader_of(consumer: FakeConsumer | None) -> GroupReader:
    reader = GroupReader(KafkaSettings(), client_id="c", topics=[SHORT, LONG], group="g")
    reader._consumer = consumer
    return reader


async def test_the_lag_is_what_is_not_committed_by_topic() -> None:
    assert await reader_of(FakeConsumer()).lag() == {SHORT: 100, LONG: 2}


async def test_before_the_start_there_is_none() -> None:
    assert await reader_of(None).lag() == {SHORT: 0, LONG: 0}


async def test_a_broker_that_is_away_is_said_so() -> None:
    with pytest.raises(BrokerUnavailable, match="cannot read the lag"):
        await reader_of(FakeConsumer(away=True)).lag()


async def _look_once(consumer: FakeConsumer) -> None:
    task = asyncio.create_task(watch_lag(reader_of(consumer), TopicNames()))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_it_is_shown_by_bucket_and_the_last_number_stands_while_the_broker_is_away() -> None:
    await _look_once(FakeConsumer())
    await _look_once(FakeConsumer(away=True))
    assert REGISTRY.get_sample_value("replyline_worker_consumer_lag", {"bucket": "short"}) == 100
    assert REGISTRY.get_sample_value("replyline_worker_consumer_lag", {"bucket": "long"}) == 2
