"""After a failover behind a fixed address the new master is used, and no process is restarted."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis import Redis

from ops.stack.embedded import EmbeddedRedis
from shared.conversation.history import History
from shared.conversation.turn import Turn
from shared.errors import StoreUnavailable
from shared.settings import KvSettings
from shared.settings.redis import RedisSettings
from shared.wire.session_key import SessionKey
from tests.chaos.hops.proxy import Proxy
from tests.integration.support.kv_stores import TENANT, A
from workers.kv.store import KvStore

TURN = Turn(request_id="r", user="question", output_text="answer", source="model", asked_unix_ms=1)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[EmbeddedRedis, EmbeddedRedis]]:
    one, other = (EmbeddedRedis(password="one-for-both", settings=[f"dir {tmp_path}"]) for _ in range(2))
    yield one, other
    one.stop()
    other.stop()


@pytest.fixture
async def address(servers: tuple[EmbeddedRedis, EmbeddedRedis]) -> AsyncIterator[Proxy]:
    async with Proxy("127.0.0.1", servers[0].port) as proxy:
        yield proxy


@pytest.fixture
def settings(
    servers: tuple[EmbeddedRedis, EmbeddedRedis], address: Proxy, monkeypatch: pytest.MonkeyPatch
) -> RedisSettings:
    monkeypatch.setattr("shared.redis.calls.RETRY_AFTER_S", 0.01)
    url = servers[0].url.replace(str(servers[0].port), str(address.port))
    return RedisSettings(url=url, timeout_ms=5_000)


def fail_over(servers: tuple[EmbeddedRedis, EmbeddedRedis], address: Proxy) -> None:
    """The connections to the demoted master stay open."""
    with Redis.from_url(servers[0].url) as admin:
        admin.execute_command("REPLICAOF", "127.0.0.1", servers[1].port)
    address.target_port = servers[1].port


async def test_turns_and_erasures_go_to_the_new_master(
    servers: tuple[EmbeddedRedis, EmbeddedRedis], address: Proxy, settings: RedisSettings
) -> None:
    history = History(settings)
    assert all(await asyncio.gather(*(history.append(SessionKey(TENANT, f"s{number}"), TURN) for number in range(4))))
    await asyncio.to_thread(fail_over, servers, address)
    assert await history.append(SessionKey(TENANT, "s0"), TURN) is None
    async with asyncio.timeout(30):
        while await history.append(SessionKey(TENANT, "s0"), TURN) is None:  # noqa: ASYNC110 - until it has reconnected
            await asyncio.sleep(0.02)
    assert await history.delete(SessionKey(TENANT, "s1"), generation=7) == 7
    await history.close()


async def test_kv_is_stored_on_the_new_master(
    servers: tuple[EmbeddedRedis, EmbeddedRedis], address: Proxy, settings: RedisSettings
) -> None:
    kv = KvSettings(timeout_ms=5_000)
    store = KvStore(settings, kv, marks=settings, max_value_bytes=1_000, count_dropped=print, retry_after_ms=10)
    session = SessionKey(TENANT, "s")

    def saves() -> bool:
        try:
            return store.probe() and store.save(session, {A: b"a"}, generation=0) == 1
        except StoreUnavailable:
            return False

    assert await asyncio.to_thread(saves)
    await asyncio.to_thread(fail_over, servers, address)
    assert not await asyncio.to_thread(saves)
    async with asyncio.timeout(30):
        while not await asyncio.to_thread(saves):  # noqa: ASYNC110 - until it has reconnected
            await asyncio.sleep(0.02)
    await asyncio.to_thread(store.close)
