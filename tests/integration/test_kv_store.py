"""Blocks of KV on a real Redis: what is written and found again, and what a Redis that is wrong, full or gone costs."""

import shutil
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import NoPermissionError

from ops.embedded import EmbeddedRedis
from ops.processes import Child, free_port
from shared.clock import now_unix_ms
from shared.errors import SettingsError, StoreUnavailable
from shared.history import History
from shared.redis_client import blocking_redis
from shared.session_key import SessionKey, shared_key
from shared.settings import KvSettings, RedisSettings, load_settings
from shared.turn import Turn
from workers.kv.store import Held, KvStore

MAX_VALUE_BYTES = 1_000
TENANT = "demo"
A, B, C, SYSTEM, FAQ = (bytes([n]) * 16 for n in b"\x00\xffC\x0a\x7b")
# The command categories would allow more than the two of us need.
COMMANDS = (
    "+eval +type +hlen +hkeys +hstrlen +hdel +hset +hmget +mget +get +set +strlen +expire +del +multi +exec "
    "+lrange +rpush +ltrim +evalsha +script|load +ping"
)


@dataclass
class Bench:
    """A store, and another client that sees and plants."""

    url: str
    session: SessionKey
    settings: RedisSettings
    dropped: Counter[str] = field(default_factory=Counter)
    stores: list[KvStore] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.admin = Redis.from_url(self.url)
        self.kv = self.session.of("kv")

    def store(self, **kv: Any) -> KvStore:
        # The default suits a machine that has a core for each of its processes.
        store = KvStore(
            self.settings,
            KvSettings(**{"timeout_ms": 1_000, "retry_after_ms": 50} | kv),
            max_value_bytes=MAX_VALUE_BYTES,
            count_dropped=lambda reason: self.dropped.update([reason]),
        )
        self.stores.append(store)
        store.probe()
        return store

    def close(self) -> None:
        for store in self.stores:
            store.close()
        self.admin.close()


MakeBench = Callable[..., Bench]


@pytest.fixture
def make_bench(unique: Callable[[str], str]) -> Iterator[MakeBench]:
    benches: list[Bench] = []

    def make(url: str, **redis: Any) -> Bench:
        benches.append(Bench(url, SessionKey(TENANT, unique("s")), RedisSettings(url=url, **redis)))
        return benches[-1]

    yield make
    for bench in benches:
        bench.close()


@pytest.fixture
def bench(redis_server: Any, make_bench: MakeBench) -> Bench:
    return make_bench(redis_server.url)


@pytest.fixture
def own_redis() -> Iterator[EmbeddedRedis]:
    """One that the test may fill."""
    with EmbeddedRedis(binary=shutil.which("redis-server"), max_memory_mb=32) as server:
        yield server


def asked() -> float:
    return now_unix_ms()


def until_back(store: KvStore) -> int:
    """What the thread does while it has nothing else to do; how often it has tried."""
    until, tries = time.monotonic() + 30, 0
    while not store.available:
        assert time.monotonic() < until
        time.sleep((store.probe_due_in_ms() or 0) / 1_000)
        tries += store.probe_due_in_ms() == 0
        store.probe()
    return tries


# --- what is written and found again


def test_a_stranger_holds_nothing(bench: Bench) -> None:
    store = bench.store()
    assert store.ask(bench.session, [SYSTEM]) == Held()
    assert store.load(bench.session, [A], [SYSTEM]) == {}
    assert store.load(bench.session, [], []) == {}
    assert bench.admin.exists(bench.kv) == 0


def test_another_worker_finds_what_was_saved_byte_for_byte(bench: Bench) -> None:
    """Names and values are any bytes: line ends, zeros, bytes that are no text."""
    blocks = {A: b"\r\n\x00\xff" * 100, B: b"", C: bytes(range(256)), b"*3\r\n$": b"$-1\r\n"}
    shared = {SYSTEM + bench.session.session_id.encode(): b"s" * 700}
    written = bench.store().save(bench.session, blocks, shared=shared, asked_unix_ms=asked())
    assert written == sum(map(len, (blocks | shared).values()))
    other = bench.store()
    assert other.ask(bench.session, [FAQ, *shared]) == Held(frozenset(blocks), frozenset(shared))
    assert other.load(bench.session, [*blocks], [*shared]) == blocks | shared
    assert other.load(bench.session, [C, b"gone"], [FAQ]) == {C: blocks[C]}


def test_a_save_larger_than_a_transaction_is_whole(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several transactions, still one round trip, and the pieces of a value arrive in order."""
    blocks = {n.to_bytes(16, "big"): bytes([n]) * 700_000 + b"end" for n in range(20)}
    store = bench.store()
    monkeypatch.setattr(store, "_max_value_bytes", 1_000_000)
    assert store.save(bench.session, blocks, asked_unix_ms=asked()) == 20 * 700_003
    assert store.load(bench.session, [*blocks]) == blocks


def commands(bench: Bench, act: Callable[[], Any]) -> Counter[str]:
    """How often Redis was given each command, by name; those within scripts too."""
    bench.admin.config_resetstat()
    act()
    stats = bench.admin.info("commandstats")
    return Counter({name.removeprefix("cmdstat_"): stat["calls"] for name, stat in stats.items()})


def test_a_second_turn_writes_only_its_own_blocks(bench: Bench) -> None:
    """What is there is not sent again; blocks that left the chain go; shared ones that another wrote stay."""
    store = bench.store()
    shared = {SYSTEM + bench.session.session_id.encode(): b"first"}
    store.save(bench.session, {A: b"a" * 500, B: b"tail"}, shared=shared, asked_unix_ms=asked())

    def turn() -> int:
        again = dict.fromkeys(shared, b"second")
        return store.save(bench.session, {C: b"c" * 300}, drop=[B, b"not there"], shared=again, asked_unix_ms=asked())

    written: list[int] = []
    counts = commands(bench, lambda: written.append(turn()))
    assert written == [300]
    assert (counts["hset"], counts["multi"], counts["set"]) == (1, 1, 1)
    assert bench.admin.hgetall(bench.kv) == {A: b"a" * 500, C: b"c" * 300}
    assert store.load(bench.session, [], [*shared]) == shared


def test_blocks_are_dropped_when_there_is_nothing_to_write(bench: Bench) -> None:
    store = bench.store()
    store.save(bench.session, {A: b"a", B: b"b"}, asked_unix_ms=asked())
    assert store.save(bench.session, {}, drop=[A], asked_unix_ms=asked()) == 0
    assert store.ask(bench.session, []).session_names == {B}
    assert commands(bench, lambda: store.save(bench.session, {}, asked_unix_ms=asked()))["multi"] == 0


def test_every_use_makes_blocks_live_longer(bench: Bench) -> None:
    shared = {SYSTEM + bench.session.session_id.encode(): b"s"}
    keys = [bench.kv, shared_key(TENANT, *shared)]
    bench.store(profile="promotion").save(bench.session, {A: b"a"}, shared=shared, asked_unix_ms=asked())
    assert all(880 < bench.admin.ttl(key) <= 900 for key in keys)
    bench.store().ask(bench.session, [*shared])
    assert all(3_580 < bench.admin.ttl(key) <= 3_600 for key in keys)
    bench.store(ttl_s=60).save(bench.session, {B: b"b"}, asked_unix_ms=asked())
    assert 50 < bench.admin.ttl(bench.kv) <= 60


def test_erasing_takes_the_sessions_blocks_and_nobody_elses(bench: Bench) -> None:
    store = bench.store()
    other = SessionKey(TENANT, bench.session.session_id + "-other")
    shared = {SYSTEM + bench.session.session_id.encode(): b"s"}
    for session in (bench.session, other):
        store.save(session, {A: b"a"}, shared=shared, asked_unix_ms=asked())
    store.erase(bench.session)
    assert store.ask(bench.session, [*shared]) == Held(frozenset(), frozenset(shared))
    assert store.ask(other, []).session_names == {A}


async def test_an_erased_session_is_not_resurrected_by_a_late_save(bench: Bench) -> None:
    """Whoever saves however late; what is asked after the erasure is kept again."""
    store = bench.store()
    session, when = bench.session, asked()
    history = History(bench.settings)
    await history.append(TENANT, session.session_id, Turn("r1", "q", "a", "model", int(when)))
    store.save(session, {A: b"a"}, asked_unix_ms=when)
    await history.delete(TENANT, session.session_id)
    await history.close()
    assert bench.admin.keys(session.of("*")) == [session.of("erased").encode()]

    assert store.save(session, {A: b"a", B: b"b" * 900}, drop=[C], asked_unix_ms=when) == 0
    assert bench.admin.exists(bench.kv) == 0
    assert store.save(session, {C: b"c" * 7}, asked_unix_ms=asked() + 1) == 7
    assert store.save(session, {A: b"a"}, asked_unix_ms=when) == 0
    assert store.ask(session, []).session_names == {C}


# --- what others planted


@pytest.mark.parametrize("plant", ["set", "rpush", "sadd"])
def test_a_key_of_the_wrong_type_holds_nothing_and_is_deleted(bench: Bench, plant: str) -> None:
    name = SYSTEM + bench.session.session_id.encode()
    shared = shared_key(TENANT, name)
    getattr(bench.admin, plant)(bench.kv, "x")
    bench.admin.hset(shared, "x", "y")
    store = bench.store()
    assert store.ask(bench.session, [name]) == Held()
    assert bench.dropped == {"wrong_type": 2}
    assert bench.admin.exists(bench.kv, shared) == 0
    assert store.available


def test_a_key_that_becomes_of_the_wrong_type_is_written_over(bench: Bench) -> None:
    """Between asking and loading, or loading and saving."""
    store = bench.store()
    bench.admin.set(bench.kv, "x")
    name = SYSTEM + bench.session.session_id.encode()
    bench.admin.hset(shared_key(TENANT, name), "x", "y")
    assert store.load(bench.session, [A, B], [name]) == {}
    assert store.save(bench.session, {A: b"a" * 9}, asked_unix_ms=asked()) == 9
    assert bench.dropped == {"wrong_type": 2}
    assert store.load(bench.session, [A]) == {A: b"a" * 9}


def test_a_value_that_cannot_be_ours_is_never_fetched(bench: Bench) -> None:
    """64 MB under a name that was asked for: told by its length, deleted, and its neighbours kept."""
    name = SYSTEM + bench.session.session_id.encode()
    bench.admin.hset(bench.kv, mapping={A: b"x" * (64 << 20), B: b"b" * MAX_VALUE_BYTES, b"n" * 65: b"c"})
    bench.admin.set(shared_key(TENANT, name), b"x" * (MAX_VALUE_BYTES + 1))
    store = bench.store()
    sent = bench.admin.info("stats")["total_net_output_bytes"]
    held = store.ask(bench.session, [name])
    assert held == Held(frozenset({B}), frozenset())
    assert store.load(bench.session, [A, B], [name]) == {B: b"b" * MAX_VALUE_BYTES}
    assert bench.admin.info("stats")["total_net_output_bytes"] - sent < 100_000
    assert bench.dropped == {"oversized": 3}
    assert bench.admin.hkeys(bench.kv) == [B]


def test_a_value_that_grew_since_it_was_asked_is_passed_over(bench: Bench) -> None:
    store = bench.store()
    bench.admin.hset(bench.kv, A, b"x" * (MAX_VALUE_BYTES + 1))
    assert store.load(bench.session, [A]) == {}
    assert bench.dropped == {"oversized": 1}


def test_a_hash_with_more_names_than_a_session_can_have_is_deleted(bench: Bench) -> None:
    bench.admin.hset(bench.kv, mapping=dict.fromkeys(range(5_000), b"x"))
    assert bench.store().ask(bench.session, []) == Held()
    assert bench.dropped == {"too_many": 1}
    assert bench.admin.exists(bench.kv) == 0


# --- a Redis that is full


def test_past_maxmemory_the_least_recently_used_sessions_give_way(
    own_redis: EmbeddedRedis, make_bench: MakeBench
) -> None:
    """10,000 sessions of 20 kB in 32 MB: every save is taken, the last are whole, older ones gone as a whole."""
    bench = make_bench(own_redis.url)
    store = bench.store()
    sessions = [SessionKey(TENANT, f"s{n}") for n in range(10_000)]
    names = [n.to_bytes(16, "big") for n in range(20)]
    blocks = dict.fromkeys(names, b"x" * MAX_VALUE_BYTES)
    for session in sessions:
        assert store.save(session, blocks, asked_unix_ms=asked()) == 20 * MAX_VALUE_BYTES
    held = [len(store.ask(session, []).session_names) for session in sessions]
    assert set(held) == {0, 20}
    assert held[-20:] == [20] * 20
    assert 100 < held.count(20) < 2_000
    assert bench.admin.info("stats")["evicted_keys"] > 8_000


def test_a_full_redis_that_evicts_nothing_takes_no_writes_and_still_gives(
    own_redis: EmbeddedRedis,
    make_bench: MakeBench,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line when writes are refused, one when they are taken again; reading goes on meanwhile."""
    bench = make_bench(own_redis.url)
    store = bench.store(retry_after_ms=60_000)
    store.save(bench.session, {A: b"a"}, asked_unix_ms=asked())
    bench.admin.config_set("maxmemory-policy", "noeviction")
    bench.admin.config_set("maxmemory", "1mb")
    capsys.readouterr()
    with pytest.raises(StoreUnavailable, match="maxmemory"):
        store.save(bench.session, {B: b"b"}, shared={SYSTEM: b"s"}, asked_unix_ms=asked())
    with pytest.raises(StoreUnavailable, match="left alone"):
        store.save(bench.session, {B: b"b"}, asked_unix_ms=asked())
    assert store.available
    assert store.ask(bench.session, []).session_names == {A}
    assert store.load(bench.session, [A]) == {A: b"a"}
    store._refusals.retry_at_ms = 0.0
    with pytest.raises(StoreUnavailable, match="maxmemory"):
        store.save(bench.session, {}, shared={SYSTEM: b"s"}, asked_unix_ms=asked())
    bench.admin.config_set("maxmemory", "0")
    store._refusals.retry_at_ms = 0.0
    assert store.save(bench.session, {B: b"b"}, asked_unix_ms=asked()) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if "redis for kv" in line]
    assert ["unavailable" in line for line in lines] == [True, False]


def test_a_replica_that_may_not_be_written_is_away_until_it_is_no_replica(
    own_redis: EmbeddedRedis, make_bench: MakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = make_bench(own_redis.url)
    store = bench.store(retry_after_ms=10)
    store.save(bench.session, {A: b"a"}, asked_unix_ms=asked())
    bench.admin.execute_command("REPLICAOF", "127.0.0.1", free_port())
    with pytest.raises(StoreUnavailable, match="read only"):
        store.save(bench.session, {B: b"b"}, asked_unix_ms=asked())
    with pytest.raises(StoreUnavailable, match="read only"):
        store.ask(bench.session, [])
    time.sleep(0.02)
    assert not store.probe()
    bench.admin.execute_command("REPLICAOF", "NO", "ONE")
    until_back(store)
    assert store.save(bench.session, {B: b"b"}, asked_unix_ms=asked()) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if "redis for kv" in line]
    assert ["unavailable" in line for line in lines] == [True, True, False, False]


# --- a Redis that is gone


def test_a_redis_that_hangs_costs_one_timeout_and_then_nothing(
    redis_server: Any, bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """Then it comes back by itself, and what it answered too late is nobody's answer."""
    store = bench.store(timeout_ms=100)
    store.save(bench.session, {A: b"a", B: b"b"}, asked_unix_ms=asked())
    before = bench.admin.info("stats")["total_connections_received"]
    capsys.readouterr()
    redis_server.pause()
    with pytest.raises(StoreUnavailable):
        store.load(bench.session, [A])
    assert not store.available
    for _ in range(1_000):
        with pytest.raises(StoreUnavailable, match="left alone"):
            store.ask(bench.session, [])
        with pytest.raises(StoreUnavailable, match="left alone"):
            store.save(bench.session, {C: b"c"}, asked_unix_ms=asked())
    store._outage.retry_at_ms = 0.0
    assert not store.probe()
    assert store.probe_due_in_ms()
    redis_server.resume()
    probes = 1 + until_back(store)
    assert bench.admin.info("stats")["total_connections_received"] - before == probes
    assert store.load(bench.session, [B]) == {B: b"b"}
    lines = [line for line in capsys.readouterr().out.splitlines() if "redis for kv" in line]
    assert ["unavailable" in line for line in lines] == [True, False]


def test_a_redis_that_died_is_back_when_it_is_started_again(redis_server: Any, bench: Bench) -> None:
    """Empty: that costs a turn its blocks, nothing else."""
    store = bench.store()
    store.save(bench.session, {A: b"a"}, asked_unix_ms=asked())
    redis_server.kill()
    with pytest.raises(StoreUnavailable):
        store.ask(bench.session, [])
    redis_server.start()
    until_back(store)
    assert store.ask(bench.session, []) == Held()


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"$many\r\n", b"-LOADING busy\r\n"])
def test_what_is_no_redis_is_unavailable_and_raises_nothing_else(make_bench: MakeBench, says: bytes) -> None:
    """A server that takes connections and is silent, or speaks something else."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        bench = make_bench(f"redis://127.0.0.1:{server.getsockname()[1]}/0")
        store = bench.store(timeout_ms=200, retry_after_ms=10_000)  # its probe meets silence
        assert not store.available
        with pytest.raises(StoreUnavailable):
            store.ask(bench.session, [])
        store._outage.succeed()
        server.settimeout(5)
        server.accept()[0].close()  # the first probe's

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


# --- who may


def test_a_user_with_a_password_and_these_commands_is_enough(redis_server: Any, make_bench: MakeBench) -> None:
    """On keys of ours alone; with a wrong password nothing is found, and nothing raised but that."""
    root = make_bench(redis_server.url)
    root.admin.execute_command("ACL SETUSER worker reset on >s3cret ~replyline:* -@all " + COMMANDS)
    address = redis_server.url.rpartition("@")[2]
    bench = make_bench(f"redis://worker:s3cret@{address}")
    store = bench.store()
    shared = {SYSTEM + bench.session.session_id.encode(): b"s"}
    assert store.save(bench.session, {A: b"a"}, drop=[B], shared=shared, asked_unix_ms=asked()) == 2
    assert store.ask(bench.session, [*shared]) == Held(frozenset({A}), frozenset(shared))
    assert store.load(bench.session, [A], [*shared]) == {A: b"a"} | shared
    store.erase(bench.session)
    with pytest.raises(NoPermissionError):
        bench.admin.get("another's")
    for user in ("worker:wrong@", "nobody:s3cret@", ""):
        stranger = make_bench(f"redis://{user}{address}")
        store = stranger.store()
        assert not store.available
        with pytest.raises(StoreUnavailable):
            store.ask(stranger.session, [])


def test_a_user_that_may_not_load_is_unavailable_until_he_may(
    redis_server: Any, make_bench: MakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    """The probe needs all that a load does, so the log does not tell of a Redis that comes and goes."""
    root = make_bench(redis_server.url)
    root.admin.execute_command("ACL SETUSER half reset on >s3cret ~replyline:* +@all -hmget")
    store = make_bench(f"redis://half:s3cret@{redis_server.url.rpartition('@')[2]}").store(retry_after_ms=10)
    for _ in range(3):
        time.sleep(0.02)
        assert not store.probe()
    root.admin.execute_command("ACL SETUSER half +hmget")
    until_back(store)
    lines = [line for line in capsys.readouterr().out.splitlines() if "redis for kv" in line]
    assert ["unavailable" in line for line in lines] == [True, False]


@dataclass(frozen=True)
class TlsRedis:
    port: int
    authority: Path

    @property
    def url(self) -> str:
        return f"rediss://kv:s3cret@localhost:{self.port}/0"


@pytest.fixture(scope="module")
def tls_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsRedis]:
    """A redis-server that speaks TLS only, its certificate signed by an authority of our own."""
    for tool in ("openssl", "redis-server"):
        if shutil.which(tool) is None:
            pytest.fail(f"{tool} is missing. Type: apt-get install {tool}", pytrace=False)
    folder = tmp_path_factory.mktemp("tls")
    new = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1"
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    for command in (
        f"{new} -subj /CN=authority -keyout ca.key -out ca.pem",
        f"{new} -subj /CN=localhost -addext {names} -CA ca.pem -CAkey ca.key -keyout redis.key -out redis.pem",
    ):
        subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    port = free_port()
    lines = [
        "bind 127.0.0.1",
        "port 0",
        f"tls-port {port}",
        f"tls-cert-file {folder}/redis.pem",
        f"tls-key-file {folder}/redis.key",
        f"tls-ca-cert-file {folder}/ca.pem",
        "tls-auth-clients no",
        'save ""',
        "user default off",
        "user kv on >s3cret ~replyline:* +@all",
    ]
    server = Child.start([str(shutil.which("redis-server")), "-"], stdin="\n".join(lines).encode())

    def listens() -> bool:
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", port)) == 0

    assert server.wait_until(listens, timeout_s=10.0)
    yield TlsRedis(port, folder / "ca.pem")
    server.stop()


async def test_over_tls_with_a_user_the_session_is_kept_and_remembered(
    tls_redis: TlsRedis, unique: Callable[[str], str]
) -> None:
    session = SessionKey(TENANT, unique("s"))
    settings = RedisSettings(url=tls_redis.url, tls_ca=tls_redis.authority, timeout_ms=2_000)
    store = KvStore(settings, KvSettings(timeout_ms=2_000), max_value_bytes=10**6, count_dropped=print)
    assert store.probe()
    blocks = {A: b"a" * 700_000, B: b"b"}
    assert store.save(session, blocks, asked_unix_ms=asked()) == 700_001
    assert store.load(session, [A, B]) == blocks
    store.close()
    history = History(settings)
    assert await history.append(TENANT, session.session_id, Turn("r1", "q", "a", "model", 1))
    await history.close()


def test_a_server_whose_authority_is_not_known_is_unavailable(tls_redis: TlsRedis) -> None:
    store = KvStore(
        RedisSettings(url=tls_redis.url), KvSettings(timeout_ms=2_000), max_value_bytes=9, count_dropped=print
    )
    assert not store.probe()
    store.close()


@pytest.mark.parametrize(
    ("url", "tls_ca", "said"),
    [
        ("rediss://host/0", "/nowhere/ca.pem", "REPLYLINE_REDIS__TLS_CA='/nowhere/ca.pem': No such file"),
        ("rediss://host/0", __file__, "no PEM certificate"),
        ("redis://host/0", None, "does not begin with rediss://"),
    ],
)
def test_a_wrong_authority_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tls_redis: TlsRedis, url: str, tls_ca: str | None, said: str
) -> None:
    monkeypatch.setenv("REPLYLINE_REDIS__URL", url)
    monkeypatch.setenv("REPLYLINE_REDIS__TLS_CA", tls_ca or str(tls_redis.authority))
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_url_that_is_none_is_one_line_without_its_password() -> None:
    with pytest.raises(SettingsError) as caught:
        blocking_redis(RedisSettings(url="http://me:s3cret@host"), timeout_ms=1)
    assert "REPLYLINE_REDIS__URL='http://me:***@host'" in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert "\n" not in str(caught.value)
