"""A Redis that is full, a replica, silent, gone or foreign costs at most one timeout, and a line in the log."""

import socket
import threading
import time
from typing import Any

import pytest

from ops.stack.embedded import EmbeddedRedis
from ops.stack.processes import free_port
from shared.errors import StoreUnavailable
from shared.wire.session_key import SessionKey
from tests.integration.support.kv_stores import (
    MAX_VALUE_BYTES,
    SYSTEM,
    TENANT,
    A,
    B,
    Bench,
    C,
    MakeBench,
    load,
    until_back,
)
from workers.kv.store import Held


def test_past_maxmemory_the_least_recently_used_sessions_are_evicted(
    own_redis: EmbeddedRedis, make_bench: MakeBench
) -> None:
    """4,000 sessions of 20 kB in 32 MB: every save is accepted, the last are complete, older ones are gone
    completely.
    """
    bench = make_bench(own_redis.url)
    store = bench.store()
    sessions = [SessionKey(TENANT, f"s{n}") for n in range(4_000)]
    names = [n.to_bytes(16, "big") for n in range(20)]
    blocks = dict.fromkeys(names, b"x" * MAX_VALUE_BYTES)
    for session in sessions:
        assert store.save(session, blocks, generation=0) == 20 * MAX_VALUE_BYTES
    held = [len(store.ask(session, []).session_names) for session in sessions]
    assert set(held) == {0, 20}
    assert held[-20:] == [20] * 20
    assert 100 < held.count(20) < 2_000
    assert bench.admin.info("stats")["evicted_keys"] > 2_000


def test_a_full_redis_without_eviction_refuses_writes_and_serves_reads(
    own_redis: EmbeddedRedis, make_bench: MakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line when writes are refused, one when they are accepted again; reads continue in between."""
    bench = make_bench(own_redis.url)
    store = bench.store(retry_after_ms=60_000)
    store.save(bench.session, {A: b"a"}, generation=0)
    bench.admin.config_set("maxmemory-policy", "noeviction")
    bench.admin.config_set("maxmemory", "1mb")
    capsys.readouterr()
    with pytest.raises(StoreUnavailable, match="maxmemory"):
        store.save(bench.session, {B: b"b"}, shared={SYSTEM: b"s"}, generation=0)
    with pytest.raises(StoreUnavailable, match="paused for a moment"):
        store.save(bench.session, {B: b"b"}, generation=0)
    assert store.available
    assert store.ask(bench.session, []).session_names == {A}
    assert load(store, bench.session, [A]) == {A: b"a"}
    store._writes.retry_at_s = 0.0
    with pytest.raises(StoreUnavailable, match="maxmemory"):
        store.save(bench.session, {}, shared={SYSTEM: b"s"}, generation=0)
    bench.admin.config_set("maxmemory", "0")
    store._writes.retry_at_s = 0.0
    assert store.save(bench.session, {B: b"b"}, generation=0) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if "redis for kv" in line]
    assert ["unavailable" in line for line in lines] == [True, False]


def test_a_read_only_replica_counts_as_away_until_it_is_promoted(
    own_redis: EmbeddedRedis, make_bench: MakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = make_bench(own_redis.url)
    store = bench.store(retry_after_ms=10)
    store.save(bench.session, {A: b"a"}, generation=0)
    bench.admin.execute_command("REPLICAOF", "127.0.0.1", free_port())
    with pytest.raises(StoreUnavailable, match="read only"):
        store.save(bench.session, {B: b"b"}, generation=0)
    with pytest.raises(StoreUnavailable, match="read only"):
        store.ask(bench.session, [])
    time.sleep(0.02)
    assert not store.probe()
    bench.admin.execute_command("REPLICAOF", "NO", "ONE")
    until_back(store)
    assert store.save(bench.session, {B: b"b"}, generation=0) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if "redis for kv" in line]
    assert ["unavailable" in line for line in lines] == [True, True, False, False]


def test_a_hanging_redis_costs_one_timeout_and_then_nothing(
    redis_server: Any, bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """Then it recovers by itself, and its late answers are discarded."""
    store = bench.store(timeout_ms=1_000)
    store.save(bench.session, {A: b"a", B: b"b"}, generation=0)
    before = bench.admin.info("stats")["total_connections_received"]
    capsys.readouterr()
    redis_server.pause()
    with pytest.raises(StoreUnavailable):
        load(store, bench.session, [A])
    assert not store.available
    for _ in range(1_000):
        with pytest.raises(StoreUnavailable, match="not called for a moment"):
            store.ask(bench.session, [])
        with pytest.raises(StoreUnavailable, match="not called for a moment"):
            store.save(bench.session, {C: b"c"}, generation=0)
    store._redis.retry_at_s = 0.0
    assert not store.probe()
    assert store.probe_due_in_ms()
    redis_server.resume()
    probes = 1 + until_back(store)
    assert bench.admin.info("stats")["total_connections_received"] - before == probes
    assert load(store, bench.session, [B]) == {B: b"b"}
    lines = [line for line in capsys.readouterr().out.splitlines() if "redis for kv" in line]
    assert ["unavailable" in line for line in lines] == [True, False]


def test_a_redis_that_died_is_used_again_after_its_restart(redis_server: Any, bench: Bench) -> None:
    """Empty: that costs a turn its blocks, nothing else."""
    store = bench.store()
    store.save(bench.session, {A: b"a"}, generation=0)
    redis_server.kill()
    with pytest.raises(StoreUnavailable):
        store.ask(bench.session, [])
    redis_server.start()
    until_back(store)
    assert store.ask(bench.session, []) == Held()


def test_a_user_without_the_right_to_load_is_unavailable_until_it_is_granted(
    redis_server: Any, make_bench: MakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    """The probe needs every right of a load, so the log reports no alternating outage."""
    root = make_bench(redis_server.url)
    root.admin.execute_command("ACL SETUSER half reset on >s3cret ~replyline:* +@all -hmget")
    address = redis_server.url.rpartition("@")[2]
    for user in ("half:wrong@", "nobody:s3cret@", ""):
        stranger = make_bench(f"redis://{user}{address}")
        with pytest.raises(StoreUnavailable):
            stranger.store().ask(stranger.session, [])
    capsys.readouterr()
    store = make_bench(f"redis://half:s3cret@{address}").store(retry_after_ms=10)
    for _ in range(3):
        time.sleep(0.02)
        assert not store.probe()
    root.admin.execute_command("ACL SETUSER half +hmget")
    until_back(store)
    lines = [line for line in capsys.readouterr().out.splitlines() if "redis for kv" in line]
    assert ["unavailable" in line for line in lines] == [True, False]


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"$many\r\n", b"-LOADING busy\r\n"])
def test_a_server_that_is_no_redis_is_unavailable_and_raises_nothing_else(make_bench: MakeBench, says: bytes) -> None:
    """The server accepts connections and is silent, or speaks another protocol."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        bench = make_bench(f"redis://127.0.0.1:{server.getsockname()[1]}/0")
        store = bench.store(timeout_ms=200, retry_after_ms=10_000)  # its probe gets no answer
        assert not store.available
        with pytest.raises(StoreUnavailable):
            store.ask(bench.session, [])
        store._redis.mark_up()
        server.settimeout(5)
        server.accept()[0].close()  # the first probe's connection

        def speak() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(says)
                connection.recv(65_536)

        speaker = threading.Thread(target=speak)
        speaker.start()
        assert not store.probe()
        store.close()
        speaker.join(10)
        assert not speaker.is_alive()
