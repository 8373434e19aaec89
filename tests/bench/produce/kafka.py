"""Where `replyline bench produce` writes: the broker, the topics, and how librdkafka gets there."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from rich.console import Console

from ops.stack.kafka_broker import KafkaBroker
from ops.stack.own_services import own_kafka
from shared.errors import BrokerUnavailable
from shared.kafka import create_topics, why_unreachable
from shared.settings.kafka import KafkaSettings
from shared.wire.topics import BUCKETS

_REMOVE_S: Final = 30.0
# Of a producer's settings alone.
_PRODUCERS: Final = ("acks", "batch", "delivery", "enable", "linger", "message", "partitioner", "queue")


@asynccontextmanager
async def broker_of(
    kafka: KafkaSettings, console: Console, *, own: bool
) -> AsyncIterator[tuple[KafkaSettings, int | None]]:
    """(settings, the broker's process where it is its own). Raises `BrokerUnavailable`, `ServiceError`."""
    if own:
        console.print("starting Apache Kafka")
        with KafkaBroker() as broker:
            yield own_kafka(kafka, broker.bootstrap), broker.pid
        return
    refused = await why_unreachable(kafka)
    if refused is not None:
        raise BrokerUnavailable(f"{refused}; for one of its own: --broker kafka")
    yield kafka, None


@asynccontextmanager
async def topics_of(kafka: KafkaSettings, console: Console, *, prefix: str, keep: bool) -> AsyncIterator[KafkaSettings]:
    """The settings with that prefix, under which the request topics are; those that were not there are removed in the
    end, unless they are to be kept. Raises `BrokerUnavailable`."""
    kafka = kafka.model_copy(update={"topic_prefix": prefix})
    wanted = {kafka.topics.requests(bucket): kafka.request_partitions for bucket in BUCKETS}
    outcome = await create_topics(kafka, wanted)
    made = [topic for topic, what in outcome.items() if what == "created"]
    try:
        yield kafka
    finally:
        if made and not keep:
            await asyncio.to_thread(_remove, kafka, made)
        elif made:
            console.print(f"kept: {', '.join(made)}", soft_wrap=True)


def _remove(kafka: KafkaSettings, topics: Sequence[str]) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    config = {name: value for name, value in client_config(kafka).items() if not name.startswith(_PRODUCERS)}
    admin = AdminClient(config)  # its futures end with it
    for topic, removed in admin.delete_topics(list(topics)).items():
        try:
            removed.result(timeout=_REMOVE_S)
        except KafkaException as error:
            raise BrokerUnavailable(f"cannot remove {topic}: {error.args[0].str()}; remove it yourself") from error


def client_config(kafka: KafkaSettings) -> dict[str, Any]:
    """librdkafka's words for these settings: durable as the gateways' producer, partitions as Kafka's own choose them,
    batches as large as they come."""
    config: dict[str, Any] = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "client.id": "replyline-bench",
        "security.protocol": kafka.security,
        "acks": "all",
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
        "linger.ms": 10,
        "batch.size": 900_000,
        "queue.buffering.max.messages": 200_000,
        "queue.buffering.max.kbytes": 262_144,
        "message.timeout.ms": 30_000,
        "delivery.report.only.error": True,
        "log_level": 0,
    }
    files = {"ssl.ca.location": kafka.tls_ca, "ssl.certificate.location": kafka.tls_cert}
    if kafka.tls_cert is not None:
        files["ssl.key.location"] = kafka.tls_key or kafka.tls_cert
    config |= {name: str(path) for name, path in files.items() if path is not None}
    if kafka.uses_sasl:
        config |= {
            "sasl.mechanism": kafka.sasl_mechanism,
            "sasl.username": kafka.username,
            "sasl.password": kafka.read_password(),
        }
    return config
