"""Workers hold no state that another cannot take over: killed between two turns, erased, cut off from Redis, given
corrupt data.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest_asyncio
from redis.asyncio import Redis

from ops.model.prepare import prepare_model
from tests.support.system import MakeSystem, Service, System, eventually, model_dir
from tests.support.wire import Answer, Client

RETURNS, CARDS = "How do I return an item?", "Do you sell gift cards?"
TALK = (
    "How long do I have to return a rain jacket that I have worn once?",
    "And who pays for the parcel then?",
    "I no longer have the box it came in. Is that a problem?",
    "When would I see the money?",
)
ONE_WORKER = {"worker__instance_id": "worker-0"}  # its successor gets its partitions immediately


@pytest_asyncio.fixture
async def system(make_system: MakeSystem) -> AsyncIterator[System]:
    """With the scripted engine, a prompt of 500 tokens takes 10 ms."""
    system = await make_system(
        worker__fake_prefill_ms_per_token=0.02,
        kafka__session_timeout_ms=2_000,
        kv__timeout_ms=5_000,
        redis__timeout_ms=5_000,
        gateway__messages_per_minute=100_000,
        promise__first_token_ms=30_000,
        promise__deadline_ms=60_000,
    )
    yield system
    system.stop()


async def started(system: System, **settings: Any) -> tuple[Service, Service]:
    """Start a gateway, and a worker with these settings."""
    return await asyncio.gather(system.gateway().ready(), system.worker(**settings).ready())


async def asked(client: Client, worker: Service, text: str, **fields: Any) -> Answer:
    """Return the answer, once its KV is written."""
    saves = await worker.metric("replyline_kv_seconds_count", what="save")
    answer = await client.ask(text, **{"max_output_tokens": 12, "temperature": 0} | fields)
    assert answer.outcome[2] == "model"

    async def is_saved() -> bool:
        return await worker.metric("replyline_kv_seconds_count", what="save") > saves

    await eventually(is_saved)
    return answer


async def test_after_kill_9_another_worker_continues_from_redis_token_for_token(system: System) -> None:
    """The real model in float32, greedy, with exact KV. A worker without any cache gives the same. (For int8 weights
    tests/conformance/test_kv_reuse.py says what to expect.)
    """
    system.settings |= {
        "worker__engine": "onnx",
        "model__dir": prepare_model(model_dir().parent, "fp32").path,
        "worker__max_length": 1_024,
        "worker__slots": 2,
        "worker__cache_dir": system.folder,
        "kv__precision": "exact",
    }
    gateway, first = await started(system, **ONE_WORKER)
    async with Client.connect(gateway.ws) as client:
        said = [(await asked(client, first, text)).text for text in TALK[:2]]
        assert await first.restored("redis") == 0

        async def is_committed() -> bool:
            return sum((await system.committed()).values()) == len(said)

        await eventually(
            is_committed
        )  # otherwise an answered request is computed again, which only the gateway notices
        first.kill()
        second = await system.worker(**ONE_WORKER).ready()
        third_turn = await asked(client, second, TALK[2])
        computed = await second.metric("replyline_worker_tokens_total", kind="prompt")
        assert await second.restored("redis") > 150
        assert computed + await second.restored() == third_turn.response["usage"]["input_tokens"]
        said.append(third_turn.text)
        said.append((await asked(client, second, TALK[3])).text)
        assert await second.restored() > 2 * await second.restored("redis"), "its own slot serves the next"
    second.kill()
    plain = await system.worker(**ONE_WORKER, kv__enabled=False).ready()
    async with Client.connect(gateway.ws) as client:
        answers = [await client.ask(text, max_output_tokens=12, temperature=0) for text in TALK]
    assert [answer.text for answer in answers] == said
    assert await plain.restored() == 0


async def test_an_erased_conversation_leaves_nothing_in_redis_or_in_the_worker(system: System) -> None:
    """The next question gets no more from the cache than a new customer's first one."""
    gateway, worker = await started(system)
    async with Redis.from_url(system.redis.url) as redis, Client.connect(gateway.ws) as client:
        key = f"replyline:{{demo/{client.session_id}}}:kv"

        async def computed(by: Client, text: str) -> float:
            before = await worker.metric("replyline_worker_tokens_total", kind="prompt")
            await asked(by, worker, text)
            return await worker.metric("replyline_worker_tokens_total", kind="prompt") - before

        await computed(client, RETURNS)
        next_turn = await computed(client, TALK[1])
        assert await redis.hlen(key) > 3
        async with Client.connect(gateway.ws) as stranger:
            expected = await computed(stranger, RETURNS)
        held = await worker.metric("replyline_kv_host_bytes")

        async def worker_has_heard() -> bool:
            return await worker.metric("replyline_kv_host_bytes") < held

        await client.send({"type": "session.delete"})
        await client.of_type("session.deleted")
        assert await redis.exists(key) == 0
        await eventually(worker_has_heard)
        assert await computed(client, RETURNS) == expected
        assert await computed(client, TALK[1]) == next_turn, "later questions are cached again"


async def bits_turned(redis: Redis, key: str) -> None:
    for name, value in (await redis.hgetall(key)).items():
        await redis.hset(key, name, value[:-1] + bytes([value[-1] ^ 1]))


async def a_list(redis: Redis, key: str) -> None:
    await redis.delete(key)
    await redis.rpush(key, *["x"] * 1_000)


async def test_corrupt_kv_is_counted_and_computed_again(system: System) -> None:
    """One slot and no host memory: KV overwritten by another customer comes from Redis. The answers are the same, and
    Redis has the right content afterwards.
    """
    gateway, worker = await started(system, kv__host_mib=0, worker__slots=1)

    async def conversed(plant: Callable[[Redis, str], Awaitable[None]] | None) -> list[str]:
        async with Client.connect(gateway.ws) as client, Client.connect(gateway.ws) as other:
            key = f"replyline:{{demo/{client.session_id}}}:kv"
            said = []
            for text in TALK[:3]:
                if plant is not None and text == TALK[2]:
                    await plant(redis, key)
                said.append((await asked(client, worker, text)).text)
                await asked(other, worker, CARDS)
            assert await redis.type(key) == b"hash"
        return said

    async with Redis.from_url(system.redis.url) as redis:
        expected = await conversed(None)
        assert await worker.restored("redis") > 300, "existing KV is used"
        for plant, reason in ((bits_turned, "checksum"), (a_list, "wrong_type")):
            assert await conversed(plant) == expected
            assert await worker.metric("replyline_kv_dropped_total", reason=reason) > 0
    assert await worker.metric("replyline_kv_dropped_total", reason="internal") == 0
    assert not worker.logged("fault")
    assert not worker.logged("raw")
