"""Of a Redis Cluster every command, script and transaction is within one hash slot: the keys' tags see to it.

A node that serves all slots refuses what would cross them (CROSSSLOT), as any cluster does, and redirects nobody.
"""

import shutil
import time
from collections.abc import Callable, Iterator

import pytest
from kv_stores import FAQ, SYSTEM, TENANT, A, B, C, MakeBench, asked
from redis import Redis
from redis.exceptions import ResponseError

from gateway.charges import Caller, Tariff
from gateway.quotas import Quotas
from ops.embedded import EmbeddedRedis
from ops.processes import free_port
from shared.clock import now_unix_ms
from shared.errors import ProtocolError
from shared.gateway_settings import HandoffSettings
from shared.history import History
from shared.quota_settings import QuotaSettings
from shared.redis_settings import RedisSettings
from shared.turn import Turn
from workers.kv.store import Held


@pytest.fixture(scope="module")
def cluster_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("cluster")
    settings = ["cluster-enabled yes", f"cluster-port {free_port()}", f"dir {folder}"]
    with (
        EmbeddedRedis(binary=shutil.which("redis-server"), settings=settings) as server,
        Redis.from_url(server.url) as admin,
    ):
        admin.execute_command("CLUSTER ADDSLOTSRANGE 0 16383")
        until = time.monotonic() + 30
        while admin.execute_command("CLUSTER INFO")["cluster_state"] != "ok":
            assert time.monotonic() < until
            time.sleep(0.05)
        yield server.url


def test_it_refuses_what_crosses_slots(cluster_url: str) -> None:
    with Redis.from_url(cluster_url) as admin, pytest.raises(ResponseError, match="same slot"):
        admin.mget("replyline:{demo/a}:kv", "replyline:{demo/b}:kv")


def test_blocks_are_saved_loaded_and_erased(cluster_url: str, make_bench: MakeBench) -> None:
    bench = make_bench(cluster_url)
    store = bench.store()
    shared = {SYSTEM: b"s" * 700, FAQ: b"f" * 10}
    for turn, gone in (({A: b"a" * 500, B: b"tail"}, []), ({A: b"a" * 500, C: b"longer"}, [B])):
        assert store.save(bench.session, turn, shared=shared, drop=gone, asked_unix_ms=asked()) > 0
        assert store.ask(bench.session, [*shared]) == Held(frozenset(turn), frozenset(shared))
        assert store.load(bench.session, [*turn], [*shared]) == turn | shared
    store.erase(bench.session)
    assert store.ask(bench.session, [*shared]) == Held(frozenset(), frozenset(shared))
    assert store.available
    assert not bench.dropped


async def test_a_conversation_is_remembered_and_erased(cluster_url: str, make_bench: MakeBench) -> None:
    """The erasure is one transaction over the conversation's keys."""
    bench = make_bench(cluster_url)
    name, when = bench.session.session_id, asked()
    assert bench.store().save(bench.session, {A: b"a"}, asked_unix_ms=when) > 0
    history = History(RedisSettings(url=cluster_url, timeout_ms=2_000))
    turn = Turn("r1", "q", "a", "model", int(when))
    assert await history.append(TENANT, name, turn)
    assert await history.turns(TENANT, name, limit=5, before_unix_ms=when + 1) == [turn]
    await history.delete(TENANT, name, asked_unix_ms=now_unix_ms())
    await history.close()
    assert bench.admin.keys(bench.session.of("*")) == [bench.session.of("erased").encode()]


async def test_a_minutes_requests_are_counted(cluster_url: str, unique: Callable[[str], str]) -> None:
    tariff = Tariff(QuotaSettings(subject_per_minute=2, tenant_per_minute=3), HandoffSettings())
    quotas = Quotas(tariff, RedisSettings(url=cluster_url, timeout_ms=2_000))
    shop = unique("shop")
    for subject in ("alice", "alice", "bob"):
        await quotas.take("ask", Caller(shop, "s", subject))
    with pytest.raises(ProtocolError, match="this tenant may have a minute"):
        await quotas.take("ask", Caller(shop, "s", "carol"))
    assert len(quotas._local) == 0, "they were counted in Redis"
    await quotas.close()
