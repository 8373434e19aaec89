"""A store on a real Redis, and another client that inspects and plants keys."""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from redis import Redis

from ops.stack.embedded import EmbeddedRedis
from shared.settings import KvSettings
from shared.settings.redis import RedisSettings
from shared.wire.session_key import SessionKey
from workers.kv.store import KvStore

MAX_VALUE_BYTES = 1_000
TENANT = "demo"
A, B, C, SYSTEM, FAQ = (bytes([n]) * 16 for n in b"\x00\xffC\x0a\x7b")


@dataclass
class Bench:
    """A store, and another client that inspects and plants keys."""

    url: str
    session: SessionKey
    settings: RedisSettings
    dropped: Counter[str] = field(default_factory=Counter)
    stores: list[KvStore] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.admin = Redis.from_url(self.url)
        self.kv = self.session.redis_key("kv")

    def store(self, *, retry_after_ms: float = 50.0, **kv: Any) -> KvStore:
        # The default suits a machine with one core for each process.
        store = KvStore(
            self.settings,
            KvSettings(**{"timeout_ms": 5_000} | kv),
            marks=self.settings,
            max_value_bytes=MAX_VALUE_BYTES,
            count_dropped=lambda reason: self.dropped.update([reason]),
            retry_after_ms=retry_after_ms,
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
        benches.append(Bench(url, SessionKey(TENANT, unique("s")), RedisSettings(url=url, timeout_ms=10_000, **redis)))
        return benches[-1]

    yield make
    for bench in benches:
        bench.close()


@pytest.fixture
def bench(redis_server: Any, make_bench: MakeBench) -> Bench:
    return make_bench(redis_server.url)


@pytest.fixture
def own_redis() -> Iterator[EmbeddedRedis]:
    """A Redis that the test may fill."""
    with EmbeddedRedis(binary=shutil.which("redis-server"), max_memory_mb=32) as server:
        yield server


def load(
    store: KvStore, session: SessionKey, names: Sequence[bytes], shared: Sequence[bytes] = ()
) -> dict[bytes, bytes]:
    """Return every block of a load."""
    return {name: value for some in store.load(session, names, shared) for name, value in some.items()}


def until_back(store: KvStore) -> int:
    """Do what the thread does while idle; return how often it has tried."""
    until, tries = time.monotonic() + 30, 0
    while not store.available:
        assert time.monotonic() < until
        time.sleep((store.probe_due_in_ms() or 0) / 1_000)
        tries += store.probe_due_in_ms() == 0
        store.probe()
    return tries
