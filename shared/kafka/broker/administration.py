"""Creating and describing topics."""

import shlex
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, TopicAuthorizationFailedError

from shared.errors import BrokerUnavailable
from shared.kafka.broker.connection import start_or_stop
from shared.kafka.broker.options import connection_options
from shared.kafka.broker.refusals import unauthorized
from shared.settings.kafka import KafkaSettings
from shared.wire.topic_layout import min_in_sync_of, wanted_replicas
from shared.wire.topics import KEPT_MS


async def create_topics(
    settings: KafkaSettings, topics: Mapping[str, int], *, kept_ms: int = KEPT_MS
) -> dict[str, str]:
    """Create what is missing; topic → "created" or "exists". If nothing is missing, no broker has to be the controller.
    Raises `BrokerUnavailable`."""
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
    """Give topics more partitions; topic → number of all. Raises `BrokerUnavailable`; then those before it have
    theirs."""
    async with _admin(settings) as admin:
        await _brokers_with_controller(admin, settings)
        for name, partitions in topics.items():
            try:
                await admin.create_partitions({name: NewPartitions(partitions)})
            except TopicAuthorizationFailedError as error:
                raise BrokerUnavailable(unauthorized(TopicAuthorizationFailedError(name), settings, "alter")) from error


async def describe_topics(settings: KafkaSettings) -> dict[str, int]:
    """Topic → number of partitions, of every topic that this user may see. Raises `BrokerUnavailable`."""
    async with _admin(settings) as admin:
        return {row["topic"]: len(row["partitions"]) for row in await admin.describe_topics()}


def more_partitions_command(settings: KafkaSettings, topic: str, partitions: int) -> str:
    """Return the command of Kafka's own tools: partitions are given to a topic by hand, for keys change their partition
    with it."""
    brokers = f"--bootstrap-server {shlex.quote(settings.bootstrap_servers)}"
    return f"kafka-topics.sh {brokers} --alter --topic {topic} --partitions {partitions}"


async def _brokers_with_controller(admin: AIOKafkaAdminClient, settings: KafkaSettings) -> set[int]:
    """Return the brokers' ids. Raises `BrokerUnavailable` where none of them is the controller, which alone changes
    topics."""
    cluster = await admin.describe_cluster()
    brokers = {broker["node_id"] for broker in cluster["brokers"]}
    if cluster["controller_id"] not in brokers:
        raise BrokerUnavailable(
            f"Kafka at {settings.bootstrap_servers} has no controller now, which changes topics; try again. The broker "
            "of `replyline up` never has one: it makes topics by itself, with a partition each"
        )
    return brokers


@asynccontextmanager
async def _admin(settings: KafkaSettings) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(**connection_options(settings), request_timeout_ms=settings.request_timeout_ms)
    try:
        await start_or_stop(admin, settings)
        yield admin
    except KafkaError as error:
        raise BrokerUnavailable(f"no Kafka at {settings.bootstrap_servers}: {error}") from error
    finally:
        await admin.close()
