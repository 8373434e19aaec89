"""What a topic holds now: read from its beginning, or a moment, to its end as it stands, outside any group."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError, UnknownTopicOrPartitionError

from shared.errors import BrokerUnavailable
from shared.kafka.connection import start_or_stop, stop_consumer
from shared.kafka.options import connection_options
from shared.kafka.records import Record, record_of
from shared.kafka.refusals import unauthorized
from shared.kafka_settings import KafkaSettings

_BATCH_RECORDS = 500


@dataclass(frozen=True, slots=True)
class Kept:
    """A record, and when it was written by its topic's clock, in Unix milliseconds."""

    record: Record
    written_unix_ms: int


async def scan(
    settings: KafkaSettings, topic: str, *, since_unix_ms: int | None = None, newest: int | None = None
) -> AsyncIterator[Kept]:
    """Each record once, a partition after another, in order; with `newest` only so many of a partition.

    Raises `BrokerUnavailable` where nobody answers, the topic is missing, or aiokafka cannot decode a record.
    """
    async with _consumer(settings, topic) as consumer:
        partitions = sorted(consumer.assignment())
        ends = await consumer.end_offsets(partitions)
        starts = await _starts(consumer, partitions, ends, since_unix_ms)
        for partition in partitions:
            end = ends[partition]
            start = starts[partition] if newest is None else max(starts[partition], end - newest)
            consumer.seek(partition, start)
            while await consumer.position(partition) < end:
                batches = await consumer.getmany(
                    partition, timeout_ms=settings.request_timeout_ms, max_records=_BATCH_RECORDS
                )
                for item in batches.get(partition, []):
                    if item.offset < end:
                        yield Kept(record_of(item), item.timestamp)


async def read_at(settings: KafkaSettings, topic: str, partition: int, offset: int) -> Kept | None:
    """The record at that place; None where there is none. Raises `BrokerUnavailable` as `scan` does."""
    async with _consumer(settings, topic) as consumer:
        place = TopicPartition(topic, partition)
        if place not in consumer.assignment():
            return None
        beginning = (await consumer.beginning_offsets([place]))[place]
        end = (await consumer.end_offsets([place]))[place]
        if not beginning <= offset < end:
            return None
        consumer.seek(place, offset)
        found = await consumer.getmany(place, timeout_ms=settings.request_timeout_ms, max_records=1)
        item = next(iter(found.get(place, [])), None)
        return Kept(record_of(item), item.timestamp) if item is not None and item.offset == offset else None


async def _starts(
    consumer: AIOKafkaConsumer, partitions: list[TopicPartition], ends: Any, since_unix_ms: int | None
) -> dict[TopicPartition, int]:
    if since_unix_ms is None:
        return dict(await consumer.beginning_offsets(partitions))
    found = await consumer.offsets_for_times(dict.fromkeys(partitions, since_unix_ms))
    return {
        partition: ends[partition] if found[partition] is None else found[partition].offset for partition in partitions
    }


@asynccontextmanager
async def _consumer(settings: KafkaSettings, topic: str) -> AsyncIterator[AIOKafkaConsumer]:
    """One of the whole topic."""
    consumer = AIOKafkaConsumer(
        topic,
        **connection_options(settings),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        request_timeout_ms=settings.request_timeout_ms,
    )
    try:
        await start_or_stop(consumer, settings)
    except UnknownTopicOrPartitionError as error:
        raise BrokerUnavailable(f"{topic} is missing; run: replyline topics create") from error
    except KafkaError as error:
        raise BrokerUnavailable(f"no Kafka at {settings.bootstrap_servers}: {error}") from error
    try:
        yield consumer
    except UnicodeDecodeError as error:
        raise BrokerUnavailable(f"{topic} holds a record whose header's name is not UTF-8: {error}") from error
    except TopicAuthorizationFailedError as error:
        raise BrokerUnavailable(unauthorized(error, settings, "read")) from error
    except KafkaError as error:
        raise BrokerUnavailable(f"cannot read {topic}: {error!r}") from error
    finally:
        await stop_consumer(consumer, limit_s=settings.request_timeout_ms / 1_000)
