"""Find a record that aiokafka cannot decode, and step over it.

Kafka does not check the bytes of a header's name, and sarama and librdkafka let a producer write any. aiokafka decodes
them as UTF-8 while it returns a batch: `getmany` raises `UnicodeDecodeError` at each try, and one such record would
stop its partition for good. The later records of its batch cannot be reached either, as aiokafka decodes a batch from
its beginning. Records that `getmany` had taken before it raised, of any partition, are lost with the exception; so
every partition goes back to what its reader has returned.
"""

import inspect
from collections.abc import Container
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition

from shared.kafka.broker.records import Record, record_of

_WHY: Final = "a header's name, here or earlier in the same batch, is not UTF-8; write UTF-8"


class HandedOver:
    """The next offset that each partition's reader has not been given yet, and the reading by it."""

    def __init__(self) -> None:
        self._next: dict[TopicPartition, int] = {}
        self._passed: dict[TopicPartition, int] = {}
        self._rewind_owed = False  # what aiokafka drained was lost, and its partitions stand behind it

    def begin(self, partition: TopicPartition, offset: int) -> None:
        self._next[partition] = offset

    def next_offset(self, partition: TopicPartition) -> int | None:
        """Return the offset of the next record; None before the reader begins."""
        return self._next.get(partition)

    def forget(self, partition: TopicPartition) -> None:
        """Taken away: it begins again where it was committed."""
        self._next.pop(partition, None)
        self._passed.pop(partition, None)

    def pop_passed(self) -> dict[tuple[str, int], int]:
        """Return the partitions where the log went on without a record for this reader, since the last call, each with
        the next offset: a transaction's markers and its aborted records are never handed over."""
        passed, self._passed = self._passed, {}
        return {(partition.topic, partition.partition): offset for partition, offset in passed.items()}

    async def read(
        self,
        consumer: AIOKafkaConsumer,
        *,
        timeout_ms: int,
        max_records: int | None,
        limit_ms: int,
        keys: Container[bytes | None] | None = None,
    ) -> list[Record]:
        """Return the records that have arrived, with `keys` those with one of these keys; none after the timeout.
        `limit_ms`: the broker's time for a record before one that cannot be decoded. After a `KafkaError` the next call
        returns what this one would have."""
        if self._rewind_owed:
            await self._rewind(consumer)
        try:
            batches = await consumer.getmany(timeout_ms=timeout_ms, max_records=max_records)
        except UnicodeDecodeError:
            return await self._step_over(consumer, limit_ms=limit_ms)
        for partition, batch in batches.items():
            if batch:
                self.begin(partition, batch[-1].offset + 1)
        return [record_of(item) for batch in batches.values() for item in batch if keys is None or item.key in keys]

    def note_passed(self, held: Any) -> None:
        """Note the partitions of aiokafka's assignment whose position is not where the last record has left it. Call
        this after a read without records: nothing waits to be handed over then."""
        for partition in () if self._rewind_owed else held.tps:
            state = held.state_value(partition)
            if state.has_valid_position and state.position > self._next.get(partition, 0):
                self._next[partition] = self._passed[partition] = state.position

    async def _step_over(self, consumer: AIOKafkaConsumer, *, limit_ms: int) -> list[Record]:
        """Return the records before the unreadable one that were not handed over, and a stand-in for it: a record
        without key, value and headers that says why in `unreadable`. All of them, or none and a rewind owed."""
        partition, _ = _unreadable(consumer)
        await self._rewind(consumer)
        self._rewind_owed = True
        records: list[Record] = []
        while True:
            try:
                batches = await consumer.getmany(partition, timeout_ms=limit_ms, max_records=1)
            except UnicodeDecodeError:
                break
            if not batches:  # the broker is slow: the next read comes upon it again
                return []
            records += [record_of(item) for item in batches[partition]]
        _, offset = _unreadable(consumer)
        consumer.seek(partition, offset + 1)
        self.begin(partition, offset + 1)
        self._rewind_owed = False
        return [*records, Record(partition.topic, partition.partition, offset, None, None, unreadable=_WHY)]

    async def _rewind(self, consumer: AIOKafkaConsumer) -> None:
        """Every partition back to what its reader was handed; it stays owed where the broker does not say where one
        began of which nothing was."""
        self._rewind_owed = True
        begun: dict[TopicPartition, int] = {}
        while unknown := [each for each in consumer.assignment() if each not in self._next and each not in begun]:
            begun[unknown[0]] = await _beginning(consumer, unknown[0])
        for partition in consumer.assignment():  # no await between: none is read on before all are back
            consumer.seek(partition, self._next.get(partition, begun.get(partition)))
        self._rewind_owed = False


async def _beginning(consumer: AIOKafkaConsumer, partition: TopicPartition) -> int:
    """Return the committed offset, or the first that Kafka keeps."""
    committed = await consumer.committed(partition)
    return int(committed or (await consumer.beginning_offsets([partition]))[partition])


def _unreadable(consumer: AIOKafkaConsumer) -> tuple[TopicPartition, int]:
    """Return the place of the unreadable record: aiokafka's generator of that partition's records has ended by the
    exception. There is no public name for it."""
    for partition, fetched in consumer._fetcher._records.items():  # noqa: SLF001
        records: Any = getattr(fetched, "_partition_records", None)
        iterator = getattr(records, "_records_iterator", None)
        if iterator is not None and inspect.getgeneratorstate(iterator) == inspect.GEN_CLOSED:
            return partition, records.next_fetch_offset
    raise AssertionError("no partition has a record that cannot be decoded")
