"""A record that a broker refuses permanently is reported as refused and delays others for a moment at most."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic

from ops.stack.kafka_broker import KafkaBroker
from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import Outgoing, Producer, create_topics, describe_topics, scan
from shared.settings.kafka import Compression, KafkaSettings
from shared.wire.topic_layout import TopicCopies, weakness

SMALL, LARGE = b"x" * 10, b"x" * 5_000


@pytest_asyncio.fixture
async def topic(kafka_broker: KafkaBroker, topic_prefix: str, unique: Callable[[str], str]) -> str:
    """Create a topic that accepts small records only."""
    name = topic_prefix + unique("narrow")
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(name, 2, 1, topic_configs={"max.message.bytes": "1000"})])
    finally:
        await admin.close()
    return name


@pytest_asyncio.fixture
async def producer(kafka_broker: KafkaBroker) -> AsyncIterator[Producer]:
    producer = Producer(KafkaSettings(bootstrap_servers=kafka_broker.bootstrap), client_id="test")
    await producer.start()
    yield producer
    await producer.stop()


async def publish(producer: Producer, topic: str, partition: int) -> int:
    """Publish until accepted; return the offset."""
    async with asyncio.timeout(10):
        while True:
            try:
                _, offset = await producer.publish(Outgoing(topic, SMALL, partition=partition))
            except BrokerUnavailable:
                await asyncio.sleep(0.05)
            else:
                return offset


async def test_a_record_after_one_that_is_too_large_is_accepted_once(producer: Producer, topic: str) -> None:
    """The broker misses a sequence number; the other partition is not affected."""
    assert await publish(producer, topic, 0) == 0
    for number in range(1, 4):
        with pytest.raises(ProtocolError) as refused:
            await producer.publish(Outgoing(topic, LARGE, partition=0))
        assert refused.value.code == "record_too_large"
        assert await publish(producer, topic, 0) == number
        assert (await producer.publish(Outgoing(topic, SMALL, partition=1)))[1] == number - 1


async def test_an_added_partition_is_written_to_immediately(
    kafka_broker: KafkaBroker, producer: Producer, topic: str
) -> None:
    """aiokafka alone would learn of it after five minutes."""
    await publish(producer, topic, 0)
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap)
    await admin.start()
    try:
        await admin.create_partitions({topic: NewPartitions(4)})
    finally:
        await admin.close()
    async with asyncio.timeout(10):
        while await _num_partitions(kafka_broker, topic) < 4:  # noqa: ASYNC110 - until the broker says so
            await asyncio.sleep(0.05)
    assert await producer.publish(Outgoing(topic, SMALL, partition=3)) == (3, 0)
    with pytest.raises(ProtocolError) as refused:
        await producer.publish(Outgoing(topic, SMALL, partition=4))
    assert refused.value.code == "unknown_topic"


async def _num_partitions(broker: KafkaBroker, topic: str) -> int:
    return (await describe_topics(KafkaSettings(bootstrap_servers=broker.bootstrap)))[topic]


async def test_a_topics_replication_and_retention_are_reported(
    kafka_broker: KafkaBroker, producer: Producer, topic_prefix: str, unique: Callable[[str], str]
) -> None:
    settings = KafkaSettings(bootstrap_servers=kafka_broker.bootstrap, topic_prefix=topic_prefix + unique("kept"))
    await create_topics(settings, {settings.topics.replies: 2}, kept_ms=960_000)
    copies = await producer.copies(settings.topics.replies, whole=True)
    config = {"cleanup.policy": "delete", "retention.ms": "960000", "message.timestamp.type": "CreateTime"}
    assert copies == TopicCopies(settings.topics.replies, 1, 1, 1, 1, 960_000, config | {"min.insync.replicas": "1"})
    assert await producer.broken_promises([settings.topics.replies, settings.topics.forgotten]) == []
    assert weakness(copies, None) is None
    assert "keeps 1 of 3 copies" in str(weakness(copies, 3))


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
async def test_compressed_records_stay_compressed_only_in_our_own_topics(
    codec: Compression, kafka_broker: KafkaBroker, topic_prefix: str, unique: Callable[[str], str]
) -> None:
    """The broker decompresses a foreign service's topic, so its reader needs no codec."""
    settings = KafkaSettings(
        bootstrap_servers=kafka_broker.bootstrap, topic_prefix=topic_prefix + unique(codec), compression=codec
    )
    ours, foreign = settings.topics.replies, settings.topics.external_replies
    await create_topics(settings, {ours: 1, foreign: 1})
    producer = Producer(settings, client_id="test")
    await producer.start()
    value = b"the refund is on its way " * 100
    try:
        await asyncio.gather(*(producer.publish(Outgoing(name, value, partition=0)) for name in (ours, foreign)))
    finally:
        await producer.stop()
    for name in (ours, foreign):
        assert [kept.record.value async for kept in scan(settings, name)] == [value]
        assert kafka_broker.data is not None
        (segment,) = kafka_broker.data.path.rglob(f"{name}-0/*.log")
        assert (value in segment.read_bytes()) is (codec == "none" or name == foreign)
