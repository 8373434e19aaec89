"""A consumer with a rack reads from the replica there, and from another if that one is unavailable."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from statistics import median, quantiles

import pytest
from aiokafka import TopicPartition

from ops.stack.processes import ServiceError
from shared.kafka import GroupReader, Outgoing, PartitionReader, Producer, create_topics
from shared.settings.kafka import KafkaSettings
from tests.chaos.actors.kafka_cluster import KafkaCluster, rack_of
from tests.proofs.elastic.conftest import Note
from tests.support.system import eventually

RECORDS = 400


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    try:
        with KafkaCluster() as cluster:
            yield cluster
    except ServiceError as error:
        pytest.fail(f"{error}", pytrace=False)


@asynccontextmanager
async def producing(settings: KafkaSettings, topic: str) -> AsyncIterator[Producer]:
    """A producer, and a topic of one partition on all brokers."""
    await create_topics(settings, {topic: 1})
    producer = Producer(settings, client_id="test")
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


def follower_of(producer: Producer, topic: str) -> int:
    """A node that keeps the topic and does not lead it."""
    assert producer._producer is not None
    leader = producer._producer.client.cluster.leader_for_partition(TopicPartition(topic, 0))
    return next(node_id for node_id in (1, 2, 3) if node_id != leader)


async def read_one(reader: PartitionReader | GroupReader) -> bytes | None:
    """The next record's value."""
    async with asyncio.timeout(60):
        while not (records := await reader.read(timeout_ms=200, max_records=1)):
            pass
    return records[0].value


def node_read_from(reader: PartitionReader | GroupReader, topic: str) -> int:
    """The node that the consumer's next fetch goes to."""
    assert reader._consumer is not None
    return int(reader._consumer._fetcher._select_read_replica(TopicPartition(topic, 0)))


async def test_it_reads_from_its_racks_follower_and_goes_on_without_it(
    cluster: KafkaCluster, unique: Callable[[str], str]
) -> None:
    """Alone, as gateways read replies, and in a group, as workers read questions."""
    topic, settings = unique("zones"), KafkaSettings(bootstrap_servers=cluster.bootstrap, request_timeout_ms=2_000)
    async with AsyncExitStack() as stack:
        producer = await stack.enter_async_context(producing(settings, topic))
        follower = follower_of(producer, topic)
        near = settings.model_copy(update={"client_rack": rack_of(follower)})
        alone = PartitionReader(near, client_id="alone", topic=topic)
        await alone.start()
        stack.push_async_callback(alone.stop)
        group = GroupReader(near, client_id="member", topics=[topic], group=unique("group"))
        await group.start(lambda: asyncio.sleep(0))
        stack.push_async_callback(group.stop)
        for number in range(3):
            await producer.publish(Outgoing(topic, b"%d" % number))
            assert [await read_one(reader) for reader in (alone, group)] == [b"%d" % number] * 2
        assert [node_read_from(reader, topic) for reader in (alone, group)] == [follower] * 2
        node = next(node for node in cluster.nodes if node.node_id == follower)
        node.halt(kill=True)
        try:
            await eventually(lambda: publishes(producer, Outgoing(topic, b"on")))
            assert [await read_one(reader) for reader in (alone, group)] == [b"on"] * 2
        finally:
            node.restart()
            await asyncio.to_thread(cluster.wait_in_sync)


async def publishes(producer: Producer, record: Outgoing) -> bool:
    await producer.publish(record)
    return True


async def test_how_much_later_a_follower_hands_out_what_was_published(
    cluster: KafkaCluster, unique: Callable[[str], str], note: Note
) -> None:
    """Each record is read twice, from the leader and from a follower."""
    topic, settings = unique("delay"), KafkaSettings(bootstrap_servers=cluster.bootstrap)
    taken: dict[str, list[float]] = {"leader": [], "follower": []}
    async with AsyncExitStack() as stack:
        producer = await stack.enter_async_context(producing(settings, topic))
        follower = follower_of(producer, topic)
        readers: dict[str, PartitionReader] = {}
        for name, rack in (("leader", ""), ("follower", rack_of(follower))):
            reader = readers[name] = PartitionReader(
                settings.model_copy(update={"client_rack": rack}), client_id=name, topic=topic
            )
            await reader.start()
            stack.push_async_callback(reader.stop)

        async def read(name: str) -> None:
            for _ in range(RECORDS):
                published_s = float(await read_one(readers[name]) or b"")
                taken[name].append((time.monotonic() - published_s) * 1_000)

        reading = [asyncio.create_task(read(name)) for name in readers]
        for _ in range(RECORDS):
            await producer.publish(Outgoing(topic, str(time.monotonic()).encode()))
            await asyncio.sleep(0.005)
        await asyncio.gather(*reading)
        assert node_read_from(readers["follower"], topic) == follower != node_read_from(readers["leader"], topic)
    middle = {name: median(took_ms) for name, took_ms in taken.items()}
    worst = {name: quantiles(took_ms, n=100)[98] for name, took_ms in taken.items()}
    figure = (
        f"publish → read: leader {middle['leader']:.1f} ms (p99 {worst['leader']:.1f}), "
        f"follower {middle['follower']:.1f} ms (p99 {worst['follower']:.1f})"
    )
    note(
        "a zone's own replica", figure, "median at most 25 ms later", holds=middle["follower"] - middle["leader"] <= 25
    )
