"""Sentinels name the master: after a failover it is used at its new address, and no process is restarted."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from gateway.access.charges import Caller, Tariff
from gateway.access.quotas import Quotas
from ops.operate.doctor.kv_memory import redis_memory
from ops.operate.doctor.services import redis_refusal
from shared.conversation.history import History
from shared.conversation.turn import Turn
from shared.errors import ProtocolError, StoreUnavailable
from shared.settings import KvSettings
from shared.settings.gateway import HandoffSettings, QuotaSettings
from shared.settings.redis import RedisSettings
from shared.wire.session_key import SessionKey
from tests.integration.support.kv_stores import TENANT, A, load
from tests.support.servers.redis_sentinel import WatchedRedis
from tests.support.system import eventually
from workers.kv.store import KvStore

PATIENCE_S = 30


@pytest.fixture
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedRedis]:
    watched = WatchedRedis(tmp_path_factory.mktemp("sentinel"))
    yield watched
    watched.stop()


@pytest.fixture
def settings(watched: WatchedRedis) -> RedisSettings:
    return RedisSettings(url=watched.url, timeout_ms=5_000)


def turn(number: int) -> Turn:
    return Turn(
        request_id=f"r{number}",
        user=f"question {number}",
        output_text=f"answer {number}",
        source="model",
        asked_unix_ms=number,
    )


@pytest.mark.parametrize("fail_over", [WatchedRedis.kill_the_master, WatchedRedis.fail_over])
async def test_after_a_failover_turns_and_kv_are_stored_and_earlier_turns_read(
    watched: WatchedRedis,
    settings: RedisSettings,
    unique: Callable[[str], str],
    fail_over: Callable[[WatchedRedis], None],
) -> None:
    """The old master has died, or lives on as a replica that refuses writes."""
    history, name = History(settings), unique("s")
    kv, session = KvSettings(timeout_ms=5_000), SessionKey(TENANT, name)
    store = KvStore(settings, kv, marks=settings, max_value_bytes=1_000, count_dropped=print)
    assert store.probe()
    assert store.save(session, {A: b"a"}, generation=0) == 1
    first = await asyncio.gather(*(history.append(SessionKey(TENANT, name), turn(number)) for number in range(1, 5)))
    assert all(first)
    await asyncio.to_thread(watched.tell, watched.master, "WAIT", 1, 5_000)
    await asyncio.to_thread(fail_over, watched)
    async with asyncio.timeout(PATIENCE_S):
        while not await history.append(SessionKey(TENANT, name), turn(5)):  # noqa: ASYNC110 - Redis is away
            await asyncio.sleep(0.05)
    told = await history.turns(SessionKey(TENANT, name), limit=9, before_unix_ms=9)
    assert sorted(each.asked_unix_ms for each in told) == [1, 2, 3, 4, 5]
    await history.close()

    async def is_saved() -> bool:
        try:
            return store.probe() and store.save(session, {A: b"b"}, generation=0) > 0
        except StoreUnavailable:
            return False

    await eventually(is_saved)
    assert load(store, session, [A]) == {A: b"b"}
    store.close()


async def test_quotas_are_counted_and_the_doctor_finds_the_master(
    settings: RedisSettings, unique: Callable[[str], str]
) -> None:
    quotas = Quotas(Tariff(QuotaSettings(subject_per_minute=1), HandoffSettings()), settings)
    caller = Caller(SessionKey(unique("shop"), "s"), "alice")
    await quotas.charge("ask", caller)
    with pytest.raises(ProtocolError, match="limit of this subject"):
        await quotas.charge("ask", caller)
    assert len(quotas._local) == 0, "they were counted in Redis"
    await quotas.close()
    assert await asyncio.to_thread(redis_refusal, settings) is None
    memory = await asyncio.to_thread(redis_memory, settings, timeout_s=2)
    assert memory is not None
    assert memory.policy == "noeviction"
