"""Who may read and write blocks: users, their commands, TLS."""

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import NoPermissionError

from ops.stack.processes import Child, free_port
from shared.conversation.history import History
from shared.conversation.session_key import SessionKey
from shared.conversation.turn import Turn
from shared.errors import SettingsError, StoreUnavailable
from shared.redis.client import blocking_redis
from shared.settings import KvSettings, load_settings
from shared.settings.redis import RedisSettings
from tests.integration.support.kv_stores import SYSTEM, TENANT, A, B, MakeBench, until_back
from workers.kv.store import Held, KvStore

# The command categories would allow more than the two of us need.
COMMANDS = (
    "+eval +type +hlen +hkeys +hstrlen +hdel +hset +hmget +mget +get +set +strlen +expire +del +multi +exec "
    "+lrange +rpush +ltrim +evalsha +script|load +ping"
)


def test_a_user_with_a_password_and_these_commands_is_enough(redis_server: Any, make_bench: MakeBench) -> None:
    """On keys of ours alone; with a wrong password nothing is found, and nothing raised but that."""
    root = make_bench(redis_server.url)
    root.admin.execute_command("ACL SETUSER worker reset on >s3cret ~replyline:* -@all " + COMMANDS)
    address = redis_server.url.rpartition("@")[2]
    bench = make_bench(f"redis://worker:s3cret@{address}")
    store = bench.store()
    shared = {SYSTEM + bench.session.session_id.encode(): b"s"}
    assert store.save(bench.session, {A: b"a"}, drop=[B], shared=shared, generation=0) == 2
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
    store = KvStore(settings, KvSettings(timeout_ms=2_000), marks=settings, max_value_bytes=10**6, count_dropped=print)
    assert store.probe()
    blocks = {A: b"a" * 700_000, B: b"b"}
    assert store.save(session, blocks, generation=0) == 700_001
    assert store.load(session, [A, B]) == blocks
    store.close()
    history = History(settings)
    assert await history.append(TENANT, session.session_id, Turn("r1", "q", "a", "model", 1))
    await history.close()


def test_a_server_whose_authority_is_not_known_is_unavailable(tls_redis: TlsRedis) -> None:
    settings = RedisSettings(url=tls_redis.url)
    store = KvStore(settings, KvSettings(timeout_ms=2_000), marks=settings, max_value_bytes=9, count_dropped=print)
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
