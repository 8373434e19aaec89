"""Find a record that aiokafka cannot decode, and skip it.

Kafka does not check the bytes of a header's name, and sarama and librdkafka let a producer write any. aiokafka decodes
them as UTF-8 when it returns a batch, so `getmany` raises `UnicodeDecodeError` at each try, and one such record would
block its partition for good, with the rest of its batch, since aiokafka decodes a batch from its beginning. The
exception also loses records of any partition that `getmany` had already removed from its buffers; therefore every
partition is rewound to the last record that its reader received.
"""

import inspect
from collections.abc import Container
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition

from shared.kafka.broker.records import Record, record_of

_WHY: Final = "the name of a header, in this record or earlier in the same batch, is not UTF-8; write UTF-8"


class FetchPositions:
    """Fetches records, and remembers the next offset of each partition that its reader has not received yet."""

    def __init__(self) -> None:
        self._next: dict[TopicPartition, int] = {}
        self._passed: dict[TopicPartition, int] = {}
        # aiokafka lost records that it had fetched, and its partitions' positions are after them
        self._rewind_owed = False

    def begin(self, partition: TopicPartition, offset: int) -> None:
        self._next[partition] = offset

    def next_offset(self, partition: TopicPartition) -> int | None:
        """Return the offset of the next record; None before the reader begins."""
        return self._next.get(partition)

    def forget(self, partition: TopicPartition) -> None:
        """Forget a partition that was revoked; later it continues from its committed offset."""
        self._next.pop(partition, None)
        self._passed.pop(partition, None)

    def pop_passed(self) -> dict[tuple[str, int], int]:
        """Return and clear the partitions whose log advanced without a record since the last call, each with its next
        offset.

        A log advances without a record at a transaction's markers and aborted records, which a reader does not get.
        """
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
        """Return the records that have arrived; an empty list after the timeout. A call after a `KafkaError` loses no
        record.

        Args:
            consumer: aiokafka's consumer.
            timeout_ms: maximum wait for a record.
            max_records: maximum number of records; None for no limit.
            limit_ms: maximum wait for each record before one that cannot be decoded.
            keys: return only records with one of these keys.
        """
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
        """Record the partitions whose position is beyond the last record that was returned.

        Call this after a read without records, when aiokafka's buffers are empty.

        Args:
            held: aiokafka's assignment.
        """
        for partition in () if self._rewind_owed else held.tps:
            state = held.state_value(partition)
            if state.has_valid_position and state.position > self._next.get(partition, 0):
                self._next[partition] = self._passed[partition] = state.position

    async def _step_over(self, consumer: AIOKafkaConsumer, *, limit_ms: int) -> list[Record]:
        """Return the records before the undecodable one, and a placeholder for it.

        The placeholder has no key, value or headers; `unreadable` says why. If the broker is too slow the result is
        empty, and the next read tries again.
        """
        partition, _ = _unreadable(consumer)
        await self._rewind(consumer)
        self._rewind_owed = True
        records: list[Record] = []
        while True:
            try:
                batches = await consumer.getmany(partition, timeout_ms=limit_ms, max_records=1)
            except UnicodeDecodeError:
                break
            if not batches:  # the broker is slow; the next read finds the record again
                return []
            records += [record_of(item) for item in batches[partition]]
        _, offset = _unreadable(consumer)
        consumer.seek(partition, offset + 1)
        self.begin(partition, offset + 1)
        self._rewind_owed = False
        return [*records, Record(partition.topic, partition.partition, offset, None, None, unreadable=_WHY)]

    async def _rewind(self, consumer: AIOKafkaConsumer) -> None:
        """Set every partition back to the first record that its reader has not received.

        If the broker does not return a needed offset, the rewind remains due and the next read repeats it.
        """
        self._rewind_owed = True
        begun: dict[TopicPartition, int] = {}
        while unknown := [each for each in consumer.assignment() if each not in self._next and each not in begun]:
            begun[unknown[0]] = await _beginning(consumer, unknown[0])
        for partition in consumer.assignment():  # no await here, so no partition is read before all have been rewound
            consumer.seek(partition, self._next.get(partition, begun.get(partition)))
        self._rewind_owed = False


async def _beginning(consumer: AIOKafkaConsumer, partition: TopicPartition) -> int:
    """Return the committed offset, or the first offset that the log still has."""
    committed = await consumer.committed(partition)
    return int(committed or (await consumer.beginning_offsets([partition]))[partition])


def _unreadable(consumer: AIOKafkaConsumer) -> tuple[TopicPartition, int]:
    """Return the partition and offset of the undecodable record.

    It is the one whose generator of records in aiokafka has ended with the exception. There is no public name for it.
    """
    for partition, fetched in consumer._fetcher._records.items():  # noqa: SLF001
        records: Any = getattr(fetched, "_partition_records", None)
        iterator = getattr(records, "_records_iterator", None)
        if iterator is not None and inspect.getgeneratorstate(iterator) == inspect.GEN_CLOSED:
            return partition, records.next_fetch_offset
    raise AssertionError("no partition has a record that cannot be decoded")
