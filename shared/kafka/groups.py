"""Read what a consumer group has committed, as an operator asks."""

from collections.abc import Iterable, Sequence

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupCoordinatorNotAvailableError, KafkaError

from shared.errors import BrokerUnavailable
from shared.kafka.broker.connection import start_or_stop, stop_consumer
from shared.kafka.broker.options import connection_options
from shared.settings.kafka import KafkaSettings


async def committed_offsets(
    settings: KafkaSettings, group: str, partitions: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], int]:
    """Return, of these (topic, partition), the next offset to read, where one is committed. Raises
    `BrokerUnavailable`."""
    admin = AIOKafkaAdminClient(**connection_options(settings), request_timeout_ms=settings.request_timeout_ms)
    try:
        await start_or_stop(admin, settings)
        # The demo's broker does not tell all that there are, by None.
        asked = [TopicPartition(*partition) for partition in partitions]
        offsets = await admin.list_consumer_group_offsets(group, partitions=asked)
    except GroupCoordinatorNotAvailableError:
        return {}  # no group has committed anything on this broker yet
    except KafkaError as error:
        raise BrokerUnavailable(f"nobody tells what {group} has committed: {error}") from error
    finally:
        await admin.close()
    return {(each.topic, each.partition): found.offset for each, found in offsets.items() if found.offset >= 0}


async def group_lag(settings: KafkaSettings, group: str, topics: Sequence[str]) -> dict[str, int]:
    """Return, by topic, the records of all its partitions that the group has not committed; where it never has, all
    that there are. Raises `BrokerUnavailable`."""
    consumer = AIOKafkaConsumer(
        *topics,
        **connection_options(settings),
        enable_auto_commit=False,
        request_timeout_ms=settings.request_timeout_ms,
    )
    try:
        await start_or_stop(consumer, settings)
        partitions = consumer.assignment()
        ends = await consumer.end_offsets(partitions)
        starts = await consumer.beginning_offsets(partitions)
    except KafkaError as error:
        raise BrokerUnavailable(f"nobody tells how far {', '.join(topics)} go: {error!r}") from error
    finally:
        await stop_consumer(consumer, limit_s=settings.request_timeout_ms / 1_000)
    committed = await committed_offsets(settings, group, [(each.topic, each.partition) for each in ends])
    lag = dict.fromkeys(topics, 0)
    for partition, end in ends.items():
        begun = committed.get((partition.topic, partition.partition), starts[partition])
        lag[partition.topic] += max(0, end - begun)
    return lag
