"""A worker's lag: records in the broker beyond its commits, for paused partitions too."""

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
    """A member with three partitions; `L0`, read from offset 5, has no committed offset."""

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
        assert partition == L0, "for the others the commit counts"
        return 5


def reader_of(consumer: FakeConsumer | None) -> GroupReader:
    reader = GroupReader(KafkaSettings(), client_id="c", topics=[SHORT, LONG], group="g")
    reader._consumer = consumer
    return reader


async def test_lag_is_the_uncommitted_records_by_topic() -> None:
    assert await reader_of(FakeConsumer()).lag() == {SHORT: 100, LONG: 2}


async def test_before_the_start_there_is_no_lag() -> None:
    assert await reader_of(None).lag() == {SHORT: 0, LONG: 0}


async def test_a_broker_that_is_away_is_reported() -> None:
    with pytest.raises(BrokerUnavailable, match="cannot read the lag"):
        await reader_of(FakeConsumer(away=True)).lag()


async def _look_once(consumer: FakeConsumer) -> None:
    task = asyncio.create_task(watch_lag(reader_of(consumer), TopicNames()))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_lag_is_exported_by_bucket_and_keeps_its_last_value_while_the_broker_is_away() -> None:
    await _look_once(FakeConsumer())
    await _look_once(FakeConsumer(away=True))
    assert REGISTRY.get_sample_value("replyline_worker_consumer_lag", {"bucket": "short"}) == 100
    assert REGISTRY.get_sample_value("replyline_worker_consumer_lag", {"bucket": "long"}) == 2
