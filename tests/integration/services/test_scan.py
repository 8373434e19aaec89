"""The scan reads a topic's records and those added later, from the real broker and from the demo's, which stores no
times.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from ops.stack.embedded import EmbeddedKafka
from ops.stack.kafka_broker import KafkaBroker
from shared.errors import BrokerUnavailable
from shared.kafka import create_topics, read_at, scan, tail
from shared.process.clock import now_unix_ms
from shared.settings.kafka import KafkaSettings

HOUR_MS = 3_600_000
PARTITIONS = 2


@dataclass(frozen=True, slots=True)
class Topic:
    """A separate topic with two partitions."""

    settings: KafkaSettings
    name: str

    async def write(self, *values: bytes, written_unix_ms: Sequence[int]) -> None:
        """Write into the partitions in turn."""
        async with AIOKafkaProducer(bootstrap_servers=self.settings.bootstrap_servers, acks="all") as producer:
            for number, (value, when) in enumerate(zip(values, written_unix_ms, strict=True)):
                await producer.send_and_wait(self.name, value, partition=number % PARTITIONS, timestamp_ms=when)

    async def values(
        self, *, since_unix_ms: int | None = None, newest: int | None = None, offsets: dict[int, int] | None = None
    ) -> list[bytes | None]:
        found = scan(self.settings, self.name, since_unix_ms=since_unix_ms, newest=newest, offsets=offsets)
        return [kept.record.value async for kept in found]


@pytest_asyncio.fixture(params=["embedded", "kafka"])
async def topic(request: pytest.FixtureRequest, unique: Callable[[str], str]) -> AsyncIterator[Topic]:
    name = unique("scanned")
    with ExitStack() as services:
        if request.param == "embedded":
            kafka = services.enter_context(EmbeddedKafka())
            kafka.create({name: PARTITIONS})
            yield Topic(KafkaSettings(bootstrap_servers=kafka.bootstrap), name)
        else:
            broker: KafkaBroker = request.getfixturevalue("kafka_broker")
            settings = KafkaSettings(bootstrap_servers=broker.bootstrap)
            await create_topics(settings, {name: PARTITIONS})
            yield Topic(settings, name)


async def test_a_scan_continues_from_an_offset_whatever_the_producers_clocks(topic: Topic) -> None:
    """An offset that the topic does not have, after it was recreated, means its beginning."""
    await topic.write(b"a", b"b", b"c", b"d", written_unix_ms=(4 * HOUR_MS, 3 * HOUR_MS, 2 * HOUR_MS, 1))
    assert await topic.values(offsets={0: 1, 1: 2}) == [b"c"]
    assert await topic.values(offsets={0: 9}) == [b"a", b"c", b"b", b"d"]


async def test_records_since_a_moment_are_found_and_no_older_ones(topic: Topic) -> None:
    """An older record may follow a younger one, and there may be no record that young."""
    now = round(now_unix_ms())
    ages_h = {b"oldest": 5, b"old": 4, b"young": 1, b"youngest": 0, b"late to come": 3, b"of today": 1}
    await topic.write(*ages_h, written_unix_ms=[now - age * HOUR_MS for age in ages_h.values()])
    assert sorted(await topic.values(since_unix_ms=now - 2 * HOUR_MS)) == [b"of today", b"young", b"youngest"]
    assert sorted(await topic.values(since_unix_ms=now - 9 * HOUR_MS)) == sorted(ages_h)
    assert await topic.values(since_unix_ms=now + HOUR_MS) == []
    assert sorted(await topic.values()) == sorted(ages_h)
    assert sorted(await topic.values(newest=1)) == [b"late to come", b"of today"]
    assert await topic.values(since_unix_ms=now - 2 * HOUR_MS, newest=1) == [b"of today"]


async def test_an_empty_topic_yields_nothing(topic: Topic) -> None:
    assert await topic.values(since_unix_ms=0) == await topic.values() == []


async def test_a_follower_gets_every_added_record_and_no_earlier_one(topic: Topic) -> None:
    """The record's time does not matter: a producer's clock may be years behind."""
    await topic.write(b"before", b"before", written_unix_ms=[round(now_unix_ms())] * 2)
    heard: list[int] = []

    async def listen() -> None:
        async for kept in tail(topic.settings, topic.name):
            number = int(kept.record.value or b"")
            heard.append(number)

    listening = asyncio.create_task(listen())
    written = 0
    async with asyncio.timeout(30):
        while len(heard) < 6:
            await topic.write(b"%d" % written, b"%d" % (written + 1), written_unix_ms=[1_000_000] * 2)
            written += 2
            await asyncio.sleep(0.1)
    listening.cancel()
    with suppress(asyncio.CancelledError):
        await listening
    assert len(set(heard)) == len(heard)
    for partition in range(PARTITIONS):
        of_it = [number for number in heard if number % PARTITIONS == partition]
        assert of_it == list(range(of_it[0], of_it[-1] + 1, PARTITIONS))


async def test_a_follower_gets_an_error_when_its_broker_ends(unique: Callable[[str], str]) -> None:
    name = unique("followed")
    with EmbeddedKafka() as kafka:
        kafka.create({name: 1})
        settings = KafkaSettings(bootstrap_servers=kafka.bootstrap, request_timeout_ms=500)
        following = asyncio.ensure_future(anext(tail(settings, name)))
        done, _ = await asyncio.wait([following], timeout=2)
        assert not done
        kafka.close()
        with pytest.raises(BrokerUnavailable, match=f"Kafka at {kafka.bootstrap} is no longer reachable"):
            async with asyncio.timeout(20):
                await following


async def test_a_scan_gets_an_error_when_its_broker_ends_during_it(unique: Callable[[str], str]) -> None:
    """The topic contains more than one fetch returns."""
    name = unique("scanned")
    with EmbeddedKafka() as kafka:
        kafka.create({name: 1})
        settings = KafkaSettings(bootstrap_servers=kafka.bootstrap, request_timeout_ms=2_000)
        async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, acks="all") as producer:
            for _ in range(40):
                await producer.send_and_wait(name, bytes(100_000), partition=0)
        records = scan(settings, name)
        await anext(records)
        kafka.close()

        async def read_on() -> None:
            async with asyncio.timeout(20):
                async for _ in records:
                    pass

        with pytest.raises(BrokerUnavailable, match=f"Kafka at {kafka.bootstrap} returned nothing from {name} for 4 s"):
            await read_on()


async def test_a_stored_record_is_found_or_its_broker_reported_away(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not reported missing if it cannot be read."""
    await topic.write(b"it", written_unix_ms=[round(now_unix_ms())])
    kept = await read_at(topic.settings, topic.name, 0, 0)
    assert kept is not None
    assert kept.record.value == b"it"
    assert await read_at(topic.settings, topic.name, 0, 1) is None
    assert await read_at(topic.settings, topic.name, PARTITIONS, 0) is None

    async def nothing(_: AIOKafkaConsumer, *__: Any, timeout_ms: int, **___: Any) -> dict[Any, Any]:
        await asyncio.sleep(timeout_ms / 1_000)
        return {}

    monkeypatch.setattr(AIOKafkaConsumer, "getmany", nothing)
    slow = topic.settings.model_copy(update={"request_timeout_ms": 500})
    with pytest.raises(BrokerUnavailable, match="returned nothing from"):
        await read_at(slow, topic.name, 0, 0)
