"""The doctor tells a Redis that lets nobody in from one that serves, and finds brokers where aiokafka does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ops.operate.doctor.checks import gather, redis_refusal
from shared.kafka import broker_addresses
from shared.settings import Settings
from shared.settings.kafka import KafkaSettings
from shared.settings.redis import RedisSettings


@asynccontextmanager
async def redis_that_says(line: bytes) -> AsyncIterator[int]:
    """To each command; one comes at a time."""

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(4_096):
            writer.write(line + b"\r\n")
        writer.close()

    async with await asyncio.start_server(reply, "127.0.0.1", 0) as server:
        port: int = server.sockets[0].getsockname()[1]
        yield port


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"-WRONGPASS invalid username-password pair or user is disabled.", "check the user in redis.url"),
        (b"-NOAUTH Authentication required.", "Authentication required"),
    ],
)
async def test_what_redis_refuses_is_told_without_the_password(line: bytes, words: str) -> None:
    async with redis_that_says(line) as port:
        url = f"redis://gateway:s3cret@127.0.0.1:{port}/0"
        told = await asyncio.to_thread(redis_refusal, RedisSettings(url=url))
    assert told is not None
    assert words in told
    assert "s3cret" not in told


async def test_a_redis_that_lets_us_in_refuses_nothing() -> None:
    async with redis_that_says(b"+PONG") as port:
        assert await asyncio.to_thread(redis_refusal, RedisSettings(url=f"redis://127.0.0.1:{port}")) is None


async def test_it_is_asked_only_where_it_answers() -> None:
    async with redis_that_says(b"-NOAUTH Authentication required.") as port:
        settings = Settings.model_validate(
            {"kafka": {"bootstrap_servers": "127.0.0.1:1, [::1]:1"}, "redis": {"url": f"redis://127.0.0.1:{port}"}}
        )
        facts = await asyncio.to_thread(gather, settings)
    assert facts.redis == {f"127.0.0.1:{port}": True}
    assert len(facts.redis_refusals) == 1
    assert facts.kafka == {"127.0.0.1:1": False, "[::1]:1": False}
    assert (await asyncio.to_thread(gather, settings)).redis_refusals == []


def test_a_brokers_address_is_read_as_aiokafka_reads_it() -> None:
    settings = KafkaSettings(bootstrap_servers="kafka-1, [::1]:9093,b:1")
    assert broker_addresses(settings) == [("kafka-1", 9092), ("::1", 9093), ("b", 1)]


@pytest.mark.parametrize("servers", ["a:", "a:9092,b:", "[::1]:"])
def test_a_broker_without_the_port_that_its_colon_announces_is_refused(servers: str) -> None:
    with pytest.raises(ValueError, match="write host:port"):
        KafkaSettings(bootstrap_servers=servers)
