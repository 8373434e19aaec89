"""The test broker is a real Kafka: it keeps acknowledged records across restarts and crashes."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from ops.stack import kafka_broker as module
from ops.stack.kafka_broker import KafkaBroker, install, metadata_of
from ops.stack.processes import ServiceError


async def _create(bootstrap: str, topic: str, partitions: int = 2) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, partitions, 1)])
    finally:
        await admin.close()


async def _produce(bootstrap: str, topic: str, *values: bytes) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True) as producer:
        for value in values:
            await producer.send_and_wait(topic, value, partition=1)


async def _consume(bootstrap: str, topic: str, group: str, count: int) -> list[bytes | None]:
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest")
    async with consumer, asyncio.timeout(20):
        records = [await consumer.getone() for _ in range(count)]
        await consumer.commit()
    return [record.value for record in records]


@pytest.mark.long
@pytest.mark.parametrize("kill", [False, True])
async def test_a_restart_keeps_address_records_and_offsets_and_a_stop_keeps_nothing(
    own_broker: KafkaBroker, unique: Callable[[str], str], kill: bool
) -> None:
    """After SIGTERM or SIGKILL the group continues at its committed offset. Stopping again is allowed."""
    bootstrap, topic, group = own_broker.bootstrap, unique("kept"), unique("readers")
    await _create(bootstrap, topic)
    await _produce(bootstrap, topic, b"one", b"two")
    assert await _consume(bootstrap, topic, group, 1) == [b"one"]
    own_broker.halt(kill=kill)
    assert not own_broker.running
    assert metadata_of(own_broker) is None
    own_broker.restart()
    assert own_broker.bootstrap == bootstrap
    assert await _consume(bootstrap, topic, group, 1) == [b"two"]
    data = own_broker.data
    assert data is not None
    assert data.path.is_dir()
    own_broker.stop()
    own_broker.stop()
    assert not data.path.exists()


def test_a_broker_that_cannot_start_reports_why(kafka_broker: KafkaBroker) -> None:
    """The error contains the end of the broker's own log, and no file stays."""
    other = KafkaBroker(port=kafka_broker.port)
    with pytest.raises(ServiceError, match=r"(?s)did not start.*[Bb]ind"):
        other.start(timeout_s=20)
    assert other.data is None


def test_without_maven_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Maven on which the jars were never fetched."""
    monkeypatch.setattr(module, "CACHE", tmp_path / "kafka-libs")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServiceError, match="apt-get install openjdk-17-jre-headless maven"):
        install()
