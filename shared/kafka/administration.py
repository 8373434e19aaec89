"""Creating and describing topics."""

from collections.abc import Mapping

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError

from shared.errors import BrokerUnavailable
from shared.settings import KafkaSettings


async def create_topics(settings: KafkaSettings, topics: Mapping[str, int]) -> dict[str, str]:
    """Create what is missing; topic → "created" or "exists". Raises `BrokerUnavailable`."""
    admin = AIOKafkaAdminClient(
        bootstrap_servers=settings.bootstrap_servers, request_timeout_ms=settings.request_timeout_ms
    )
    outcome: dict[str, str] = {}
    try:
        await admin.start()
        for name, partitions in topics.items():
            new = NewTopic(
                name,
                num_partitions=partitions,
                replication_factor=settings.replication_factor,
                topic_configs=settings.topics.config(name),
            )
            response = await admin.create_topics([new])
            code, message = response.topic_errors[0][1], response.topic_errors[0][2]
            if code not in (0, TopicAlreadyExistsError.errno):
                raise BrokerUnavailable(f"cannot create {name}: {message or f'error {code}'}")
            outcome[name] = "exists" if code else "created"
    except KafkaError as error:
        raise BrokerUnavailable(f"no Kafka at {settings.bootstrap_servers}: {error}") from error
    finally:
        await admin.close()
    return outcome


async def describe_topics(settings: KafkaSettings) -> dict[str, int]:
    """Topic → number of partitions, of every topic on the broker. Raises `BrokerUnavailable`."""
    admin = AIOKafkaAdminClient(
        bootstrap_servers=settings.bootstrap_servers, request_timeout_ms=settings.request_timeout_ms
    )
    try:
        await admin.start()
        return {row["topic"]: len(row["partitions"]) for row in await admin.describe_topics()}
    except KafkaError as error:
        raise BrokerUnavailable(f"no Kafka at {settings.bootstrap_servers}: {error}") from error
    finally:
        await admin.close()
