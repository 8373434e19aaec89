"""The demo's Kafka and Redis provide what the gateway and the workers need, and leave nothing behind."""

import asyncio
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError

from ops.operate import topics
from ops.stack.embedded import EmbeddedKafka, EmbeddedRedis
from ops.stack.processes import ServiceError
from shared.errors import BrokerUnavailable
from shared.kafka import await_lane, create_topics, grow_topics
from shared.settings.kafka import KafkaSettings
from shared.wire.lanes import LANES, Lane
from shared.wire.topics import KEPT_MS

TIMEOUT_S = 10.0

# A background test run has SIGINT ignored, and child processes inherit that.
HOLDER = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from ops.stack.embedded import EmbeddedKafka, EmbeddedRedis
with EmbeddedKafka() as kafka, EmbeddedRedis() as redis:
    print(redis.port, redis._child.process.pid, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka() as embedded:
        yield embedded


async def test_kafka_returns_produced_records_with_key_headers_and_partition(kafka: EmbeddedKafka) -> None:
    """An idempotent acks=all producer and a consumer group of one make a round trip."""
    kafka.create({"requests": 4})
    options = {"bootstrap_servers": kafka.bootstrap}
    async with AIOKafkaProducer(acks="all", enable_idempotence=True, **options) as producer:
        for number in range(20):
            headers = [("deadline-unix-ms", b"1700000000000")]
            await producer.send_and_wait("requests", b"%d" % number, key=b"session", partition=3, headers=headers)
    consumer = AIOKafkaConsumer("requests", group_id="workers", auto_offset_reset="earliest", **options)
    async with consumer:
        records = [await consumer.getone() for _ in range(20)]
        await consumer.commit()
    assert [record.value for record in records] == [b"%d" % number for number in range(20)]
    assert {(record.partition, record.key) for record in records} == {(3, b"session")}
    assert records[0].headers == (("deadline-unix-ms", b"1700000000000"),)


async def test_a_record_wakes_a_fetch_that_waits(kafka: EmbeddedKafka) -> None:
    """A fetch of another topic on the same connection does not delay it, nor does a batch of many records."""
    kafka.create({"requests": 2, "replies": 1})
    options = {"bootstrap_servers": kafka.bootstrap}
    waiting = AIOKafkaConsumer("requests", "replies", fetch_max_wait_ms=60_000, request_timeout_ms=90_000, **options)
    async with waiting, AIOKafkaProducer(acks="all", linger_ms=5, **options) as producer:
        await asyncio.sleep(0.2)  # until it waits
        for topic, count in (("requests", 1), ("replies", 1), ("requests", 500)):
            sent = [await producer.send(topic, b"%d" % number, partition=0) for number in range(count)]
            await asyncio.gather(*sent)
            async with asyncio.timeout(TIMEOUT_S):
                assert [(await waiting.getone()).value for _ in sent] == [b"%d" % number for number in range(count)]


async def test_a_fetch_without_records_ends_after_its_wait(kafka: EmbeddedKafka) -> None:
    """A consumer can stop, and read what it asks for next, though nothing was produced."""
    kafka.create({"requests": 1})
    consumer = AIOKafkaConsumer("requests", fetch_max_wait_ms=100, bootstrap_servers=kafka.bootstrap)
    async with asyncio.timeout(TIMEOUT_S), consumer:
        assert await consumer.getmany(timeout_ms=1_000) == {}


async def test_a_producer_may_want_no_acknowledgement(kafka: EmbeddedKafka) -> None:
    kafka.create({"requests": 1})
    options = {"bootstrap_servers": kafka.bootstrap}
    async with AIOKafkaProducer(acks=0, **options) as producer:
        for number in range(3):
            await producer.send_and_wait("requests", b"%d" % number)
        reader = AIOKafkaConsumer("requests", auto_offset_reset="earliest", **options)
        async with asyncio.timeout(TIMEOUT_S), reader:
            assert [(await reader.getone()).value for _ in range(3)] == [b"0", b"1", b"2"]


def fetch(version: int, topic: bytes, wait_ms: int) -> bytes:
    header = struct.pack(">hhih", 1, version, 7, -1)
    body = struct.pack(">iiiibi", -1, wait_ms, 1, 1 << 20, 0, 1) + struct.pack(">h", len(topic)) + topic
    frame = header + body + struct.pack(">iiqi", 1, 0, 0, 1 << 20)
    return struct.pack(">i", len(frame)) + frame


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", b"\xff\xff\xff\xff", struct.pack(">ih", 2, 1)])
def test_kafka_closes_a_connection_that_speaks_another_protocol(kafka: EmbeddedKafka, sent: bytes) -> None:
    host, _, port = kafka.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as client:
        client.sendall(sent)
        assert client.recv(1) == b""


def test_kafka_ends_while_a_fetch_waits(kafka: EmbeddedKafka) -> None:
    kafka.create({"requests": 1})
    host, _, port = kafka.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as client:
        client.sendall(fetch(4, b"requests", wait_ms=60_000))
        time.sleep(0.1)
        kafka.close()
        assert client.recv(1) == b""


async def test_kafka_has_no_controller_and_a_command_that_needs_one_says_so(kafka: EmbeddedKafka) -> None:
    settings = KafkaSettings(bootstrap_servers=kafka.bootstrap)
    kafka.create({"requests": 1})
    for change in (create_topics(settings, {"more": 1}), grow_topics(settings, {"requests": 2})):
        with pytest.raises(BrokerUnavailable, match="has no controller now"):
            await change


@pytest.mark.parametrize("lane", LANES)
async def test_existing_topics_of_a_lane_need_no_controller(kafka: EmbeddedKafka, lane: Lane) -> None:
    """A worker of the lane starts, and the command that creates missing topics succeeds."""
    settings = KafkaSettings(bootstrap_servers=kafka.bootstrap)
    wanted = settings.topics.of_lane(lane, request_partitions=1)
    kafka.create(wanted)
    async with asyncio.timeout(TIMEOUT_S):
        await await_lane(settings, lane, kept_ms=KEPT_MS)
    told = await topics.create(settings, wanted)
    assert told == topics.Told([f"{name}: exists, 1 partition" for name in wanted], [])
    with pytest.raises(BrokerUnavailable, match="has no controller now"):
        await topics.create(settings, {**wanted, "more": 1})


def test_kafka_refuses_an_existing_topic_and_any_topic_after_its_end(kafka: EmbeddedKafka) -> None:
    """Both errors name the topic; closing twice is allowed."""
    kafka.create({"once": 1})
    with pytest.raises(ServiceError, match="once"):
        kafka.create({"once": 1})
    kafka.close()
    kafka.close()
    with pytest.raises(ServiceError, match="closed"):
        kafka.create({"late": 1})


@pytest.mark.parametrize(("platform", "command"), [("linux", "make setup"), ("darwin", "docker compose up")])
def test_kafka_without_its_library_names_the_command(
    platform: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only Linux has a package of it to install."""
    monkeypatch.setattr("ops.stack.embedded.find_librdkafka", lambda: None)
    monkeypatch.setattr(sys, "platform", platform)
    with pytest.raises(ServiceError, match=f"the embedded Kafka is missing. Type: {command}") as caught:
        EmbeddedKafka()
    assert ("runs on Linux" in str(caught.value)) == (platform != "linux")


async def test_redis_keeps_values_in_memory_only() -> None:
    """A value can be read back; after a crash and a start on the same port it is gone."""
    with EmbeddedRedis() as server:
        async with Redis.from_url(server.url) as client:
            await client.set("key", b"value")
            assert await client.get("key") == b"value"
            assert await client.config_get("save") == {"save": ""}
            assert await client.config_get("appendonly") == {"appendonly": "no"}
        url = server.url
        server.kill()
        assert not server.running
        server.start()
        assert server.url == url
        async with Redis.from_url(server.url) as client:
            assert await client.get("key") is None


async def test_redis_refuses_other_users_of_the_machine() -> None:
    """Without the password of its URL every command is refused, and the password is on no command line."""
    with EmbeddedRedis() as server:
        assert server._child is not None
        assert server._password not in " ".join(psutil.Process(server._child.process.pid).cmdline())
        async with Redis(port=server.port, retry=Retry(NoBackoff(), 0)) as stranger:
            with pytest.raises(AuthenticationError):
                await stranger.ping()


def test_redis_without_a_binary_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error on a machine without redis-server names the command to type."""
    monkeypatch.setattr("ops.stack.embedded.find_redis_server", lambda: None)
    with pytest.raises(ServiceError, match="apt-get install redis-server"):
        EmbeddedRedis()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_or_file_is_left_when_the_holder_ends(tmp_path: Path, number: signal.Signals) -> None:
    """After Ctrl-C, SIGTERM or SIGKILL of the holder its redis-server ends too, and no temporary file stays."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as holder:
        assert holder.stdout is not None
        port, pid = map(int, holder.stdout.readline().split())
        redis = psutil.Process(pid)
        assert any(connection.laddr.port == port for connection in redis.net_connections())
        holder.send_signal(number)
        holder.wait(TIMEOUT_S)
    until = time.monotonic() + TIMEOUT_S
    while redis.is_running() and redis.status() != psutil.STATUS_ZOMBIE and time.monotonic() < until:
        time.sleep(0.02)
    assert not redis.is_running() or redis.status() == psutil.STATUS_ZOMBIE
    assert list(tmp_path.iterdir()) == []


async def test_redis_names_the_damage_of_a_file_that_it_cannot_load(tmp_path: Path) -> None:
    """A truncated end is no damage: what was written whole before it is there."""
    with EmbeddedRedis(settings=("appendonly yes", "appendfsync always", f"dir {tmp_path}")) as redis:
        async with Redis.from_url(redis.url) as client:
            for number in range(500):
                await client.rpush("journal", f"entry {number}")
        redis.kill()
        (kept,) = tmp_path.rglob("*.aof")  # noqa: ASYNC240 - nothing else runs
        kept.write_bytes(kept.read_bytes()[:-5])
        redis.start()
        async with Redis.from_url(redis.url) as client:
            assert await client.llen("journal") == 499
        redis.kill()
        whole = kept.read_bytes()
        kept.write_bytes(whole[:2_000] + b"x" * 100 + whole[2_100:])
        with pytest.raises(ServiceError, match=r"does not start on 127\.0\.0\.1: Bad file format"):
            redis.start()
