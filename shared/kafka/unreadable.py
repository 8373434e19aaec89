"""A record that aiokafka cannot decode, found and stepped over.

Kafka keeps a header's name as bytes and checks them not; sarama and librdkafka let a producer write any. aiokafka
decodes them as UTF-8 while it hands out a batch, so that `getmany` raises `UnicodeDecodeError`, and would at each try:
one such record would stop its partition for good. What stands behind it in the same batch, its producer's own records,
cannot be reached either: aiokafka decodes a batch from its beginning. What `getmany` had drained before it raised, of
other partitions too, is lost with the exception; so every partition goes back to what its reader has handed over.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition

from shared.kafka.records import Record, record_of

_WHY: Final = "a header's name, here or earlier in the same batch, is not UTF-8; write UTF-8"


class HandedOver:
    """The next offset that each partition's reader has not been given yet."""

    def __init__(self) -> None:
        self._next: dict[TopicPartition, int] = {}

    def begin(self, partition: TopicPartition, offset: int) -> None:
        self._next[partition] = offset

    def note(self, batches: Mapping[TopicPartition, Sequence[Any]]) -> None:
        for partition, batch in batches.items():
            if batch:
                self._next[partition] = batch[-1].offset + 1

    def next_offset(self, partition: TopicPartition) -> int | None:
        """None before it begins."""
        return self._next.get(partition)

    def forget(self, partition: TopicPartition) -> None:
        """Taken away: it begins again where it was committed."""
        self._next.pop(partition, None)

    async def step_over(self, consumer: AIOKafkaConsumer, *, limit_ms: int) -> list[Record]:
        """Those before the unreadable one that were not handed over, and a stand-in for it: a record without key,
        value and headers that says why in `unreadable`. Called where `getmany` has raised `UnicodeDecodeError`."""
        partition, _ = _unreadable(consumer)
        for assigned in consumer.assignment():
            consumer.seek(assigned, await self._position(consumer, assigned))
        records: list[Record] = []
        while True:
            try:
                batches = await consumer.getmany(partition, timeout_ms=limit_ms, max_records=1)
            except UnicodeDecodeError:
                break
            if not batches:  # the broker is slow: the next read comes upon it again
                return records
            self.note(batches)
            records += [record_of(item) for item in batches[partition]]
        _, offset = _unreadable(consumer)
        consumer.seek(partition, offset + 1)
        self.begin(partition, offset + 1)
        return [*records, Record(partition.topic, partition.partition, offset, None, None, unreadable=_WHY)]

    async def _position(self, consumer: AIOKafkaConsumer, partition: TopicPartition) -> int:
        """A partition of which nothing was handed over yet began where it was committed, or at its beginning."""
        if partition in self._next:
            return self._next[partition]
        committed = await consumer.committed(partition)
        return int(committed or (await consumer.beginning_offsets([partition]))[partition])


def _unreadable(consumer: AIOKafkaConsumer) -> tuple[TopicPartition, int]:
    """Where it is: aiokafka's generator of that partition's records has ended by the exception. There is no public
    name for it."""
    for partition, fetched in consumer._fetcher._records.items():  # noqa: SLF001
        records: Any = getattr(fetched, "_partition_records", None)
        iterator = getattr(records, "_records_iterator", None)
        if iterator is not None and inspect.getgeneratorstate(iterator) == inspect.GEN_CLOSED:
            return partition, records.next_fetch_offset
    raise AssertionError("no partition has a record that cannot be decoded")
