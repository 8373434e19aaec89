"""KV in a Redis that evicts, history and erasures in one that does not; each also without the other."""

import asyncio
import shutil
from collections.abc import Iterator

import pytest
import pytest_asyncio
from redis import Redis

from ops.stack.embedded import EmbeddedRedis
from shared.conversation.history import History
from shared.conversation.turn import Turn
from shared.errors import StoreUnavailable
from shared.settings import KvSettings
from shared.settings.redis import RedisSettings
from shared.wire.session_key import SessionKey
from tests.integration.support.kv_stores import TENANT, A, MakeBench
from tests.support.system import MakeSystem, Service, System, eventually
from tests.support.wire import Client
from workers.kv.store import KvStore

RETURNS = "How do I return an item?"


@pytest.fixture
def kv_redis() -> Iterator[EmbeddedRedis]:
    """A small one that evicts the oldest key."""
    with EmbeddedRedis(binary=shutil.which("redis-server"), max_memory_mb=8) as server:
        yield server


@pytest_asyncio.fixture
async def system(new_system: MakeSystem, kv_redis: EmbeddedRedis) -> System:
    return await new_system(
        worker__fake_prefill_ms_per_token=0.02,
        kv_redis__url=kv_redis.url,
        kv__timeout_ms=5_000,
        promise__first_token_ms=30_000,
        promise__deadline_ms=60_000,
    )


def keys(url: str) -> set[str]:
    with Redis.from_url(url, decode_responses=True) as redis:
        return set(redis.keys("*"))


async def started(system: System) -> tuple[Service, Service]:
    gateway, worker = await asyncio.gather(system.gateway().ready(), system.worker().ready())
    return gateway, worker


async def test_each_redis_has_its_own_data_and_an_erasure_reaches_both(system: System, kv_redis: EmbeddedRedis) -> None:
    gateway, _ = await started(system)
    async with Client.connect(gateway.ws) as client:
        await client.ask(RETURNS, max_output_tokens=12)
        session = SessionKey("demo", client.session_id)
        await eventually(lambda: session.redis_key("kv") in keys(kv_redis.url))
        await eventually(lambda: session.redis_key("turns") in keys(system.redis.url))
        assert session.redis_key("kv") not in keys(system.redis.url)
        assert session.redis_key("turns") not in keys(kv_redis.url)
        await client.send({"type": "session.delete"})
        await client.of_type("session.deleted")
    assert session.redis_key("kv") not in keys(kv_redis.url)
    assert {key for key in keys(system.redis.url) if client.session_id in key} == {session.redis_key("erased")}


async def test_without_the_kv_redis_a_conversation_is_remembered_and_its_erasure_not_confirmed(
    system: System, kv_redis: EmbeddedRedis
) -> None:
    """Data that it may still hold is not reported erased; once it is back, and empty, it is."""
    gateway, worker = await started(system)
    kv_redis.kill()
    async with Client.connect(gateway.ws) as client:
        first = await client.ask(RETURNS, max_output_tokens=12)
        await system.turns(client.session_id, at_least=1)
        second = await client.ask("And who pays for the parcel?", max_output_tokens=12)
        assert second.outcome[2] == "model"
        assert second.response["usage"]["input_tokens"] > first.response["usage"]["input_tokens"]
        await client.send({"type": "session.delete"})
        assert (await client.error())["code"] == "history_unavailable"
        kv_redis.start()
        await asyncio.sleep(1.2)  # it is not called for a second
        await client.send({"type": "session.delete"})
        await client.of_type("session.deleted")
    assert (await gateway.status_of("/ready"), await worker.status_of("/ready")) == (200, 200)


async def test_overfilling_the_kv_redis_loses_no_turn_and_no_mark(
    own_redis: EmbeddedRedis, kv_redis: EmbeddedRedis, make_bench: MakeBench
) -> None:
    """The control: in a single Redis the marks are evicted with the least recently used keys."""
    marks = RedisSettings(url=own_redis.url, timeout_ms=5_000)
    both = RedisSettings(url=kv_redis.url, timeout_ms=5_000)
    for history_at, lost in ((marks, False), (both, True)):
        history = History(history_at, kv=both)
        await history.delete(SessionKey(TENANT, "erased"), generation=7)
        assert await history.append(
            SessionKey(TENANT, "said"), Turn(request_id="r", user="q", output_text="a", source="model", asked_unix_ms=1)
        )
        bench = make_bench(kv_redis.url)
        store = KvStore(
            both, KvSettings(timeout_ms=5_000), marks=marks, max_value_bytes=1 << 20, count_dropped=bench.dropped.update
        )
        assert store.probe()
        for number in range(40):
            store.save(SessionKey(TENANT, f"s{number}"), {A: b"x" * 500_000}, generation=0)
        store.close()
        generation = await history.generation(SessionKey(TENANT, "erased"))
        turns = await history.turns(SessionKey(TENANT, "said"), limit=1, before_unix_ms=2)
        assert (generation, bool(turns)) == ((0, False) if lost else (7, True))
        await history.close()


async def test_nothing_is_stored_while_erasures_are_unknown(own_redis: EmbeddedRedis, kv_redis: EmbeddedRedis) -> None:
    """Data written before that is removed."""
    store = KvStore(
        RedisSettings(url=kv_redis.url),
        KvSettings(timeout_ms=5_000),
        marks=RedisSettings(url=own_redis.url),
        max_value_bytes=1_000,
        count_dropped=print,
    )
    session = SessionKey(TENANT, "s")
    assert store.probe()
    own_redis.stop()
    with pytest.raises(StoreUnavailable, match="cannot read whether"):
        store.save(session, {A: b"a"}, generation=0)
    assert keys(kv_redis.url) == set()
    assert store.available, "the KV Redis is available"
    own_redis.start()
    assert store.save(session, {A: b"a"}, generation=0) == 1
    store.close()
