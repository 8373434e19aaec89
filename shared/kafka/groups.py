"""What a consumer group has committed, as an operator asks."""

from collections.abc import Sequence
from typing import Self

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupCoordinatorNotAvailableError, KafkaError

from shared.errors import BrokerUnavailable
from shared.kafka.connection import start_or_stop, stop_consumer
from shared.kafka.options import connection_options
from shared.kafka_settings import KafkaSettings


class GroupWatcher:
    """One connection for many looks. Use as an async context manager."""

    def __init__(self, settings: KafkaSettings, group: str) -> None:
        self._settings = settings
        self._group = group
        self._admin = AIOKafkaAdminClient(
            **connection_options(settings), request_timeout_ms=settings.request_timeout_ms
        )

    async def __aenter__(self) -> Self:
        await start_or_stop(self._admin, self._settings)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._admin.close()

    async def committed(self) -> dict[tuple[str, int], int]:
        """(topic, partition) → next offset to read, where one is committed. Raises `BrokerUnavailable`."""
        try:
            offsets = await self._admin.list_consumer_group_offsets(self._group)
        except GroupCoordinatorNotAvailableError:
            return {}  # no group has committed anything on this broker yet
        except KafkaError as error:
            raise BrokerUnavailable(f"nobody tells what {self._group} has committed: {error}") from error
        return {(partition.topic, partition.partition): found.offset for partition, found in offsets.items()}


async def group_lag(settings: KafkaSettings, group: str, topics: Sequence[str]) -> dict[str, int]:
    """By topic: the records of all its partitions that the group has not committed; where it never has, all that there
    are. Raises `BrokerUnavailable`."""
    async with GroupWatcher(settings, group) as watcher:
        committed = await watcher.committed()
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
    lag = dict.fromkeys(topics, 0)
    for partition, end in ends.items():
        begun = committed.get((partition.topic, partition.partition), starts[partition])
        lag[partition.topic] += max(0, end - begun)
    return lag
