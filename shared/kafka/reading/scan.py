"""Read a topic's current records without a consumer group, from its beginning or from a time; or follow its new
records.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError, UnknownTopicOrPartitionError

from shared.errors import BrokerUnavailable
from shared.kafka.broker.connection import has_connection, start_or_stop, stop_consumer
from shared.kafka.broker.options import connection_options
from shared.kafka.broker.records import Record, record_of
from shared.kafka.broker.refusals import no_kafka, unauthorized
from shared.settings.kafka import KafkaSettings


async def offsets_since(
    consumer: AIOKafkaConsumer, partitions: Collection[TopicPartition], since_unix_ms: int | None
) -> dict[TopicPartition, int]:
    """Return each partition's offset of the first record with a timestamp at or after `since_unix_ms`.

    It is the partition's end if there is no such record or no `since_unix_ms`, and its beginning if the broker does not
    support timestamps (as librdkafka's mock broker).

    Raises:
        KafkaError: Kafka does not answer.
    """
    if not partitions:
        return {}
    ends: dict[TopicPartition, int] = await consumer.end_offsets(partitions)
    if since_unix_ms is None:
        return ends
    beginnings = await consumer.beginning_offsets(partitions)
    found = await consumer.offsets_for_times(dict.fromkeys(partitions, since_unix_ms))
    # None means that no record is that recent, or that the broker does not support timestamps. A request for time 0
    # shows which of the two it is.
    of_any_time = await consumer.offsets_for_times(dict.fromkeys(partitions, 0))
    return {
        partition: found[partition].offset
        if found[partition] is not None
        else (beginnings if of_any_time[partition] is None else ends)[partition]
        for partition in partitions
    }


_BATCH_RECORDS = 500


@dataclass(frozen=True, slots=True)
class TimedRecord:
    """A record with its timestamp in Unix milliseconds."""

    record: Record
    written_unix_ms: int


async def scan(
    settings: KafkaSettings,
    topic: str,
    *,
    since_unix_ms: int | None = None,
    newest: int | None = None,
    offsets: Mapping[int, int] | None = None,
) -> AsyncIterator[TimedRecord]:
    """Yield each record once, partition by partition, in order.

    Args:
        settings: the brokers and their credentials.
        topic: the topic to read.
        since_unix_ms: only records written at this time or later.
        newest: only this many of the last offsets of each partition.
        offsets: first offset by partition. If the topic does not have that offset, for example because it was created
            again, the partition is read from its beginning.

    Raises:
        BrokerUnavailable: the broker stops answering, the topic does not exist, or aiokafka cannot decode a record.
    """
    async with _consumer(settings, topic) as consumer:
        partitions = sorted(consumer.assignment())
        ends = await consumer.end_offsets(partitions)
        if since_unix_ms is None:
            starts = await consumer.beginning_offsets(partitions)
        else:
            starts = await offsets_since(consumer, partitions, since_unix_ms)
        for partition in partitions:
            end = ends[partition]
            start = starts[partition] if newest is None else max(starts[partition], end - newest)
            if offsets is not None and start <= offsets.get(partition.partition, start) <= end:
                start = offsets.get(partition.partition, start)
            consumer.seek(partition, start)
            position = start
            while position < end:
                items, position = await _next(consumer, partition, settings, max_records=_BATCH_RECORDS)
                for item in items:
                    if item.offset < end and (since_unix_ms is None or item.timestamp >= since_unix_ms):
                        yield TimedRecord(record_of(item), item.timestamp)


async def tail(settings: KafkaSettings, topic: str) -> AsyncIterator[TimedRecord]:
    """Yield each record written after this call, without end.

    Raises:
        BrokerUnavailable: as `scan`, and if the broker becomes unreachable.
    """
    async with _consumer(settings, topic) as consumer:
        # Not `seek_to_end`: the consumer is already looking up the beginning, and the answer that arrives first would
        # win.
        for partition, end in (await consumer.end_offsets(consumer.assignment())).items():
            consumer.seek(partition, end)
        while True:
            batches = await consumer.getmany(timeout_ms=settings.request_timeout_ms)
            for batch in batches.values():
                for item in batch:
                    yield TimedRecord(record_of(item), item.timestamp)
            if not batches and not has_connection(consumer):
                raise BrokerUnavailable(f"Kafka at {settings.bootstrap_servers} is no longer reachable")


async def read_at(settings: KafkaSettings, topic: str, partition: int, offset: int) -> TimedRecord | None:
    """Return the record at an offset, or None if the log has no record there.

    Raises:
        BrokerUnavailable: as `scan`.
    """
    async with _consumer(settings, topic) as consumer:
        place = TopicPartition(topic, partition)
        if place not in consumer.assignment():
            return None
        beginning = (await consumer.beginning_offsets([place]))[place]
        end = (await consumer.end_offsets([place]))[place]
        if not beginning <= offset < end:
            return None
        consumer.seek(place, offset)
        items, _ = await _next(consumer, place, settings, max_records=1)
        item = next(iter(items), None)
        return TimedRecord(record_of(item), item.timestamp) if item is not None and item.offset == offset else None


async def _next(
    consumer: AIOKafkaConsumer, place: TopicPartition, settings: KafkaSettings, *, max_records: int
) -> tuple[list[Any], int]:
    """Return the next records before the log's end, and the offset after them. A gap in the log gives no records.

    Raises:
        BrokerUnavailable: the position did not change for two requests' time. aiokafka does not report a lost
            connection.
    """
    limit_s = 2 * settings.request_timeout_ms / 1_000
    try:
        async with asyncio.timeout(limit_s):
            before = await consumer.position(place)
            while True:
                batches = await consumer.getmany(place, timeout_ms=settings.request_timeout_ms, max_records=max_records)
                items: list[Any] = batches.get(place, [])
                position = await consumer.position(place)
                if items or position != before:
                    return items, position
    except TimeoutError:
        cause = f"Kafka at {settings.bootstrap_servers} returned nothing from {place.topic} for {limit_s:g} s"
        raise BrokerUnavailable(cause) from None


@asynccontextmanager
async def _consumer(settings: KafkaSettings, topic: str) -> AsyncIterator[AIOKafkaConsumer]:
    """Open a consumer of the whole topic."""
    consumer = AIOKafkaConsumer(
        topic,
        **connection_options(settings),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=settings.fetch_max_wait_ms,
        request_timeout_ms=settings.request_timeout_ms + settings.fetch_max_wait_ms,
    )
    try:
        await start_or_stop(consumer, settings)
    except UnknownTopicOrPartitionError as error:
        raise BrokerUnavailable(f"{topic} is missing; run: replyline topics create") from error
    except KafkaError as error:
        raise BrokerUnavailable(no_kafka(settings, error)) from error
    try:
        yield consumer
    except UnicodeDecodeError as error:
        raise BrokerUnavailable(f"{topic} has a record with a header name that is not UTF-8: {error}") from error
    except TopicAuthorizationFailedError as error:
        raise BrokerUnavailable(unauthorized(error, settings, "read")) from error
    except KafkaError as error:
        raise BrokerUnavailable(f"cannot read {topic}: {error!r}") from error
    finally:
        await stop_consumer(consumer, limit_s=settings.request_timeout_ms / 1_000)
