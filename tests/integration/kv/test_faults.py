"""Whatever stands in Redis in place of what was computed: counted, computed again, and the answer is the same."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from redis.asyncio import Redis

from tests.support.system import MakeSystem, Service, System, eventually
from tests.support.wire import Answer, Client
from workers.kv.values import encode

QUESTIONS = ("How do I return an item?", "And who pays for the parcel?", "How long does it take then?")
WHOLE = ("incomplete", "max_output_tokens", "model")


@pytest_asyncio.fixture(scope="module")
async def system(make_system: MakeSystem) -> System:
    """One slot and no host memory: what another customer has overwritten comes from Redis."""
    return await make_system(
        worker__fake_prefill_ms_per_token=0.02,
        worker__slots=1,
        kv__host_mib=0,
        kv__timeout_ms=1_000,
        gateway__messages_per_minute=100_000,
        promise__first_token_ms=20_000,
        promise__deadline_ms=30_000,
    )


@pytest_asyncio.fixture
async def redis(system: System) -> AsyncIterator[Redis]:
    async with Redis.from_url(system.redis.url) as redis:
        yield redis


async def asked(client: Client, worker: Service, text: str) -> Answer:
    """The answer, once what was computed of it is written."""
    saves = await worker.metric("replyline_kv_seconds_count", what="save")
    answer = await client.ask(text, max_output_tokens=12)
    assert answer.outcome == WHOLE

    async def is_saved() -> bool:
        return await worker.metric("replyline_kv_seconds_count", what="save") > saves

    await eventually(is_saved)
    return answer


async def from_redis(worker: Service) -> float:
    return await worker.metric("replyline_kv_tokens_total", level="redis")


def first_block(harm: Callable[[bytes, bytes], bytes]) -> Callable[[Redis, str], Any]:
    async def plant(redis: Redis, key: str) -> None:
        values = await redis.hgetall(key)
        for name, value in values.items():
            await redis.hset(key, name, harm(name, value))

    return plant


def foreign(name: bytes, value: bytes) -> bytes:
    """Well formed and as long, of a model with two heads."""
    return encode(np.zeros((1, 1, 2, (len(value) - 24) // 16, 1), "<u8"), "exact", name=name)


async def as_text(redis: Redis, key: str) -> None:
    await redis.set(key, "x")


async def as_list(redis: Redis, key: str) -> None:
    await redis.delete(key)
    await redis.rpush(key, *["x"] * 1_000)


async def many_names(redis: Redis, key: str) -> None:
    await redis.hset(key, mapping=dict.fromkeys(range(5_000), b"x"))


async def absurd_names(redis: Redis, key: str) -> None:
    await redis.hset(key, mapping={b"\x00\r\n" * 100_000: b"x", b"": b"", "报" * 50: b"y"})


PLANTS: dict[str, tuple[Callable[[Redis, str], Any], str]] = {
    "truncated": (first_block(lambda _, value: value[:-3]), "truncated"),
    "empty": (first_block(lambda _, __: b""), "truncated"),
    "corrupted": (first_block(lambda _, value: value[:-1] + bytes([value[-1] ^ 1])), "checksum"),
    "noise": (first_block(lambda _, value: bytes(len(value))), "foreign"),
    "of another model": (first_block(foreign), "layout"),
    "10 MiB": (first_block(lambda _, __: bytes(10 << 20)), "oversized"),
    "text": (as_text, "wrong_type"),
    "a list": (as_list, "wrong_type"),
    "too many names": (many_names, "too_many"),
    "absurd names": (absurd_names, "oversized"),
}


async def conversed(
    gateway: Service, worker: Service, redis: Redis, plant: Callable[[Redis, str], Any] | None
) -> list[str]:
    """The answers of a conversation, before whose last question something is planted."""
    async with Client.connect(gateway.ws) as client, Client.connect(gateway.ws) as other:
        key = f"replyline:{{demo/{client.session_id}}}:kv"
        texts = []
        for text in QUESTIONS:
            if plant is not None and text == QUESTIONS[-1]:
                await plant(redis, key)
            texts.append((await asked(client, worker, text)).text)
            await asked(other, worker, "Do you sell gift cards?")
        assert await redis.type(key) == b"hash"
    return texts


async def test_what_is_there_is_used(gateway: Service, worker: Service, redis: Redis) -> None:
    """Without this the tests below would prove nothing."""
    before = await from_redis(worker)
    await conversed(gateway, worker, redis, None)
    assert await from_redis(worker) - before > 300


@pytest.mark.parametrize("what", PLANTS)
async def test_what_is_planted_is_counted_and_computed_again(
    gateway: Service, worker: Service, redis: Redis, what: str
) -> None:
    """The same answers as without it; Redis holds the right thing afterwards, and nothing is said twice."""
    plant, reason = PLANTS[what]
    expected = await conversed(gateway, worker, redis, None)
    before = await worker.metric("replyline_kv_dropped_total", reason=reason)
    internal = await worker.metric("replyline_kv_dropped_total", reason="internal")
    lines = len(worker.logged("kv_block_dropped"))
    assert await conversed(gateway, worker, redis, plant) == expected
    assert await worker.metric("replyline_kv_dropped_total", reason=reason) > before
    assert await worker.metric("replyline_kv_dropped_total", reason="internal") == internal
    assert len(worker.logged("kv_block_dropped")) - lines <= 1
    assert not worker.logged("fault")
    assert not worker.logged("raw")


async def test_past_maxmemory_sessions_give_way_and_questions_are_answered(
    system: System, gateway: Service, worker: Service, redis: Redis
) -> None:
    """10,000 sessions of 10 kB in 16 MB, while two customers ask."""
    await redis.config_set("maxmemory", "16mb")
    evicted = (await redis.info("stats"))["evicted_keys"]

    async def fill() -> None:
        for start in range(0, 10_000, 100):
            pipeline = redis.pipeline(transaction=False)
            for number in range(start, start + 100):
                key = f"replyline:{{demo/filler-{number}}}:kv"
                pipeline.hset(key, mapping={bytes([n]) * 16: bytes(1_000) for n in range(10)})
            await pipeline.execute()
            await asyncio.sleep(0.005)

    filling = asyncio.create_task(fill())
    async with Client.connect(gateway.ws) as one, Client.connect(gateway.ws) as other:
        while not filling.done():
            for client in (one, other):
                assert (await client.ask("Where is my order?", max_output_tokens=3)).outcome == WHOLE
        await filling
    assert (await redis.info("stats"))["evicted_keys"] - evicted > 5_000
    await redis.config_set("maxmemory", "256mb")
    before = await from_redis(worker)
    await conversed(gateway, worker, redis, None)
    assert await from_redis(worker) > before
    assert not worker.logged("fault")
