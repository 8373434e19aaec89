"""A reader with a changed partition set continues those it keeps without a gap, and starts new ones a set time ago."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaProducer

from ops.stack.embedded import EmbeddedKafka
from ops.stack.kafka_broker import KafkaBroker
from shared.errors import BrokerUnavailable
from shared.kafka import PartitionReader, create_topics
from shared.settings.kafka import KafkaSettings
from tests.support.system import LIMIT_S, eventually

PARTITIONS = 3
HOUR_MS = 3_600_000


@dataclass
class Follower:
    settings: KafkaSettings
    topic: str
    reader: PartitionReader = field(init=False)
    read: list[bytes | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reader = PartitionReader(self.settings, client_id="test", topic=self.topic, partitions=())

    async def follow(self, *partitions: int, since_unix_ms: int = 0) -> None:
        await self.reader.follow(partitions, since_unix_ms=since_unix_ms)

    async def write(self, *values: str, written_unix_ms: int | None = None) -> None:
        """Write each record into the partition that its text begins with."""
        async with AIOKafkaProducer(bootstrap_servers=self.settings.bootstrap_servers, acks="all") as producer:
            for value in values:
                await producer.send_and_wait(
                    self.topic, value.encode(), partition=int(value[0]), timestamp_ms=written_unix_ms
                )

    async def hears(self, *values: str) -> None:
        """Check that the reader gets these records, each once, and no other."""

        async def heard() -> bool:
            self.read += [record.value for record in await self.reader.read(timeout_ms=50)]
            return len(self.read) >= len(values)

        await eventually(heard)
        self.read += [record.value for record in await self.reader.read(timeout_ms=300)]
        assert sorted(self.read) == sorted(value.encode() for value in values)  # type: ignore[type-var]
        self.read.clear()


@pytest_asyncio.fixture(params=["embedded", "kafka"])
async def follower(request: pytest.FixtureRequest, unique: Callable[[str], str]) -> AsyncIterator[Follower]:
    name = unique("followed")
    with ExitStack() as services:
        if request.param == "embedded":
            kafka = services.enter_context(EmbeddedKafka())
            kafka.create({name: PARTITIONS})
            bootstrap = kafka.bootstrap
        else:
            broker: KafkaBroker = request.getfixturevalue("kafka_broker")
            bootstrap = broker.bootstrap
            await create_topics(KafkaSettings(bootstrap_servers=bootstrap), {name: PARTITIONS})
        found = Follower(KafkaSettings(bootstrap_servers=bootstrap, fetch_max_wait_ms=10), name)
        await found.reader.start()
        try:
            yield found
        finally:
            await found.reader.stop()


async def test_new_partitions_start_a_while_ago_and_kept_ones_continue(follower: Follower) -> None:
    await follower.write("0a", "1a")
    await follower.hears()
    assert follower.reader.num_partitions == PARTITIONS
    await follower.follow(0)
    await follower.hears("0a")
    await follower.write("0b", "1b", "2b")
    await follower.follow(0, 1)
    await follower.hears("0b", "1a", "1b")
    await follower.follow(1)
    await follower.write("0c", "1c")
    await follower.hears("1c")
    await follower.follow()
    await follower.write("1d")
    await follower.hears()
    await follower.follow(0, 1)
    await follower.hears("0a", "0b", "0c", "1a", "1b", "1c", "1d")


@pytest.mark.parametrize("follower", ["kafka"], indirect=True)
async def test_records_older_than_the_start_time_are_not_read(follower: Follower) -> None:
    """This also holds if no record is that young."""
    now = round(time.time() * 1_000)
    await follower.write("0old", "1old", written_unix_ms=now - 2 * HOUR_MS)
    await follower.write("0young", written_unix_ms=now)
    await follower.follow(0, 1, since_unix_ms=now - HOUR_MS)
    await follower.hears("0young")
    await follower.write("1new")
    await follower.hears("1new")


@pytest.mark.parametrize("follower", ["kafka"], indirect=True)
async def test_a_reader_that_starts_in_the_past_waits_for_no_fetch(follower: Follower) -> None:
    """An empty fetch waits for 50 s here, and any request after it on that connection waits as well."""
    await follower.reader.stop()
    settings = follower.settings.model_copy(update={"fetch_max_wait_ms": 5_000})
    follower.reader = PartitionReader(settings, client_id="test", topic=follower.topic, partitions=[0], unhurried=True)
    async with asyncio.timeout(LIMIT_S):
        await follower.reader.start(since_unix_ms=round(time.time() * 1_000) - HOUR_MS)
    await follower.write("0new")
    await follower.hears("0new")


@pytest.mark.parametrize("follower", ["kafka"], indirect=True)
async def test_a_broker_that_does_not_answer_changes_no_assignment(
    follower: Follower, kafka_broker: KafkaBroker
) -> None:
    await follower.follow(0)
    follower.settings.__dict__["request_timeout_ms"] = 0  # even from a fast broker
    with pytest.raises(BrokerUnavailable, match="at a time"):
        await follower.follow(1)
    follower.settings.__dict__["request_timeout_ms"] = 5_000
    await follower.write("0a", "1a")
    await follower.hears("0a")


@pytest.mark.parametrize("follower", ["kafka"], indirect=True)
async def test_kafka_keeps_a_fetch_session_of_a_reader(follower: Follower) -> None:
    await follower.follow(0, 1, 2)
    await follower.write("0a", "1a", "2a")
    await follower.hears("0a", "1a", "2a")
    assert follower.reader._consumer is not None
    (session,) = follower.reader._consumer._client.send.__self__._sessions.values()
    assert session.id > 0
    await follower.write("2b")
    await follower.hears("2b")
