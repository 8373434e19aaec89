"""A reader that gets further partitions does not fetch while it looks up where they begin."""

from collections.abc import Iterable
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError
from aiokafka.structs import OffsetAndTimestamp

from shared.errors import BrokerUnavailable
from shared.kafka import PartitionReader
from shared.settings.kafka import KafkaSettings

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)


class Consumer:
    """A consumer that owns P. A broker answers its requests in order, so a lookup waits for a fetch before it."""

    def __init__(self, *, fails: bool) -> None:
        self.assigned, self.paused, self.position = {P}, set[TopicPartition](), dict[TopicPartition, int]()
        self.num_lookups, self.num_behind_a_fetch, self._fails = 0, 0, fails

    def assignment(self) -> set[TopicPartition]:
        return self.assigned

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self.assigned = set(partitions)

    def pause(self, *partitions: TopicPartition) -> None:
        self.paused |= {*partitions}

    def resume(self, *partitions: TopicPartition) -> None:
        self.paused -= {*partitions}

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.position[partition] = offset

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._looked_up(partitions, 9)

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._looked_up(partitions, 0)

    async def offsets_for_times(self, times: dict[TopicPartition, int]) -> dict[TopicPartition, Any]:
        return self._looked_up(times, OffsetAndTimestamp(5, 0))

    def _looked_up(self, partitions: Iterable[TopicPartition], found: Any) -> dict[TopicPartition, Any]:
        self.num_lookups += 1
        self.num_behind_a_fetch += bool(self.assigned - self.paused)
        if self._fails:
            raise KafkaConnectionError("gone")
        return dict.fromkeys(partitions, found)


def reader_of(consumer: Any) -> PartitionReader:
    reader = PartitionReader(KafkaSettings(), client_id="c", topic="t", partitions=())
    reader._consumer = consumer
    reader._positions.begin(P, 3)
    return reader


async def test_no_lookup_waits_behind_a_fetch() -> None:
    consumer = Consumer(fails=False)
    await reader_of(consumer).follow([0, 1], since_unix_ms=1)
    assert (consumer.num_lookups, consumer.num_behind_a_fetch) == (4, 0)
    assert (consumer.assigned, consumer.paused, consumer.position) == ({P, Q}, set(), {P: 3, Q: 5})


async def test_after_a_failed_lookup_the_reader_fetches_as_before() -> None:
    consumer = Consumer(fails=True)
    with pytest.raises(BrokerUnavailable, match="at a time"):
        await reader_of(consumer).follow([0, 1], since_unix_ms=1)
    assert (consumer.assigned, consumer.paused) == ({P}, set())
