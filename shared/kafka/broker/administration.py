"""Create and describe topics, and read the offsets that consumer groups have committed."""

import shlex
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    KafkaError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
)
from aiokafka.structs import OffsetAndMetadata

from shared.errors import BrokerUnavailable
from shared.kafka.broker.connection import start_or_stop, stop_consumer
from shared.kafka.broker.options import connection_options
from shared.kafka.broker.refusals import no_kafka, unauthorized
from shared.settings.kafka import KafkaSettings
from shared.wire.topic_layout import min_in_sync_of, wanted_replicas
from shared.wire.topics import KEPT_MS


async def create_topics(
    settings: KafkaSettings, topics: Mapping[str, int], *, kept_ms: int = KEPT_MS
) -> dict[str, str]:
    """Create missing topics and return each topic's outcome, "created" or "exists".

    Creating needs the cluster's controller; if no topic is missing, any broker will do.

    Args:
        settings: the brokers and their credentials.
        topics: number of partitions by topic.
        kept_ms: retention of the topics that are created.

    Raises:
        BrokerUnavailable: Kafka is not reachable, has no controller, or refuses to create a topic.
    """
    async with _admin(settings) as admin:
        found = {row["topic"] for row in await admin.describe_topics()}
        outcome = dict.fromkeys(topics, "exists")
        missing = {name: partitions for name, partitions in topics.items() if name not in found}
        if not missing:
            return outcome
        replicas = wanted_replicas(settings.replication_factor, len(await _brokers_with_controller(admin, settings)))
        least = min_in_sync_of(replicas)
        for name, partitions in missing.items():
            new = NewTopic(
                name,
                num_partitions=partitions,
                replication_factor=replicas,
                topic_configs=settings.topics.config(
                    name, min_in_sync=least, kept_ms=kept_ms, compressed=settings.compression != "none"
                ),
            )
            response = await admin.create_topics([new])
            code, message = response.topic_errors[0][1], response.topic_errors[0][2]
            if code == TopicAuthorizationFailedError.errno:
                raise BrokerUnavailable(unauthorized(TopicAuthorizationFailedError(name), settings, "create"))
            if code not in (0, TopicAlreadyExistsError.errno):
                raise BrokerUnavailable(f"cannot create {name}: {message or f'error {code}'}")
            outcome[name] = "exists" if code else "created"
    return outcome


async def grow_topics(settings: KafkaSettings, topics: Mapping[str, int]) -> None:
    """Increase topics to the given total numbers of partitions.

    Raises:
        BrokerUnavailable: a topic could not be increased. Topics before it in `topics` have been.
    """
    async with _admin(settings) as admin:
        await _brokers_with_controller(admin, settings)
        for name, partitions in topics.items():
            try:
                await admin.create_partitions({name: NewPartitions(partitions)})
            except TopicAuthorizationFailedError as error:
                raise BrokerUnavailable(unauthorized(TopicAuthorizationFailedError(name), settings, "alter")) from error


async def describe_topics(settings: KafkaSettings) -> dict[str, int]:
    """Return the number of partitions of every topic that this user may see.

    Raises:
        BrokerUnavailable: Kafka is not reachable.
    """
    async with _admin(settings) as admin:
        return {row["topic"]: len(row["partitions"]) for row in await admin.describe_topics()}


def more_partitions_command(settings: KafkaSettings, topic: str, partitions: int) -> str:
    """Return the command of Kafka's own tools that adds partitions to a topic.

    Replyline prints it and does not run it, because adding partitions changes the partition that a key maps to.
    """
    brokers = f"--bootstrap-server {shlex.quote(settings.bootstrap_servers)}"
    return f"kafka-topics.sh {brokers} --alter --topic {topic} --partitions {partitions}"


async def _brokers_with_controller(admin: AIOKafkaAdminClient, settings: KafkaSettings) -> set[int]:
    """Return the brokers' ids.

    Raises:
        BrokerUnavailable: none of the brokers is the controller, which is needed to change topics.
    """
    cluster = await admin.describe_cluster()
    brokers = {broker["node_id"] for broker in cluster["brokers"]}
    if cluster["controller_id"] not in brokers:
        raise BrokerUnavailable(
            f"Kafka at {settings.bootstrap_servers} has no controller now, which is needed to change topics; try "
            "again. The broker of `replyline up` never has one: it creates topics itself, with one partition each"
        )
    return brokers


@asynccontextmanager
async def _admin(settings: KafkaSettings) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(**connection_options(settings), request_timeout_ms=settings.request_timeout_ms)
    try:
        await start_or_stop(admin, settings)
        yield admin
    except KafkaError as error:
        raise BrokerUnavailable(no_kafka(settings, error)) from error
    finally:
        await admin.close()


async def committed_offsets(
    settings: KafkaSettings, group: str, partitions: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], int]:
    """Return the group's committed offset of each of these (topic, partition) pairs; without a commit a pair is left
    out.

    Raises:
        BrokerUnavailable: Kafka is not reachable.
    """
    found = await _committed(settings, group, partitions)
    return {place: each.offset for place, each in found.items()}


async def committed_note(settings: KafkaSettings, group: str, partition: tuple[str, int]) -> str:
    """Return the metadata of the group's last commit of a (topic, partition) pair; "" without a commit.

    Raises:
        BrokerUnavailable: Kafka is not reachable, or does not show the group to this user.
    """
    found = (await _committed(settings, group, [partition])).get(partition)
    return "" if found is None else found.metadata or ""


async def _committed(
    settings: KafkaSettings, group: str, partitions: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], OffsetAndMetadata]:
    admin = AIOKafkaAdminClient(**connection_options(settings), request_timeout_ms=settings.request_timeout_ms)
    try:
        await start_or_stop(admin, settings)
        # Name the partitions: the demo's broker does not return all of them for None.
        asked = [TopicPartition(*partition) for partition in partitions]
        offsets = await admin.list_consumer_group_offsets(group, partitions=asked)
    except GroupCoordinatorNotAvailableError:
        return {}  # no group has committed anything on this broker yet
    except KafkaError as error:
        raise BrokerUnavailable(f"cannot read what {group} has committed: {error}") from error
    finally:
        await admin.close()
    return {(each.topic, each.partition): found for each, found in offsets.items() if found.offset >= 0}


async def group_lag(settings: KafkaSettings, group: str, topics: Sequence[str]) -> dict[str, int]:
    """Return the number of records in each topic that the group has not committed.

    All records of a partition count if the group never committed it.

    Raises:
        BrokerUnavailable: Kafka is not reachable.
    """
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
        raise BrokerUnavailable(f"cannot read the ends of {', '.join(topics)}: {error!r}") from error
    finally:
        await stop_consumer(consumer, limit_s=settings.request_timeout_ms / 1_000)
    committed = await committed_offsets(settings, group, [(each.topic, each.partition) for each in ends])
    lag = dict.fromkeys(topics, 0)
    for partition, end in ends.items():
        begun = committed.get((partition.topic, partition.partition), starts[partition])
        lag[partition.topic] += max(0, end - begun)
    return lag
