"""Workers' caches on one in-memory Redis, and KV that records to whose tokens it belongs."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from prometheus_client import REGISTRY

from shared.errors import StoreUnavailable
from shared.wire.session_key import SessionKey
from tests.support.builders.worker import LinearCosts, sequence
from workers.engine.kv_layout import KvLayout, KvPieces
from workers.kv.blocks import BlockNamer
from workers.kv.cache import KvCache, KvSaver
from workers.kv.disk import DiskTier
from workers.kv.gate import LoadGate
from workers.kv.host import HostCache
from workers.kv.loader import KvLoader
from workers.kv.memory import KvMemory
from workers.kv.store import Held
from workers.schedule.sequence import Sequence

BLOCK = 4
LAYOUT = KvLayout(layers=2, parts=2, heads=1, dim=3, dtype="<f4")
SHARED = list(range(1, 10))  # two full blocks of the shop's words, and one token more
TALK = [*SHARED, *range(20, 29)]  # 18 tokens: four full blocks and a tail of two
LIMIT_S = 10.0


@dataclass
class Redis:
    """What all stores see."""

    sessions: dict[SessionKey, dict[bytes, bytes]] = field(default_factory=dict)
    shared: dict[tuple[str, bytes], bytes] = field(default_factory=dict)
    erased: dict[SessionKey, int] = field(default_factory=dict)
    written: int = 0
    """Bytes."""

    def erase(self, session: SessionKey) -> int:
        """The generation that begins."""
        self.erased[session] = self.erased.get(session, 0) + 1
        self.sessions.pop(session, None)
        return self.erased[session]

    def of(self, session: str = "a", tenant: str = "t") -> dict[bytes, bytes]:
        return self.sessions.get(SessionKey(tenant, session), {})


@dataclass
class Store:
    """`KvStore` in memory. `broken` names the method that Redis does not answer."""

    redis: Redis
    available: bool = True
    broken: str | None = None
    fault: Exception | None = None
    calls: Counter[str] = field(default_factory=Counter)
    loaded: list[bytes] = field(default_factory=list)
    closed: bool = False

    def _call(self, name: str) -> None:
        assert not self.closed
        self.calls[name] += 1
        if self.fault is not None:
            raise self.fault
        if not self.available or self.broken == name:
            self.available = False
            raise StoreUnavailable("Redis: no answer in time")

    def probe_due_in_ms(self) -> float | None:
        return None

    def probe(self) -> bool:
        return self.available

    def ask(self, session: SessionKey, shared_names: Collection[bytes]) -> Held:
        self._call("ask")
        shared = frozenset(name for name in shared_names if (session.tenant, name) in self.redis.shared)
        return Held(frozenset(self.redis.sessions.get(session, {})), shared)

    def load(
        self, session: SessionKey, names: Collection[bytes], shared_names: Collection[bytes] = ()
    ) -> Iterator[dict[bytes, bytes]]:
        if names or shared_names:
            self._call("load")
        own = self.redis.sessions.get(session, {})
        for name in shared_names:
            if (value := self.redis.shared.get((session.tenant, name))) is not None:
                self.loaded.append(name)
                yield {name: value}
        for name in names:
            if name in own:
                self.loaded.append(name)
                yield {name: own[name]}

    def save(
        self,
        session: SessionKey,
        blocks: Mapping[bytes, bytes],
        *,
        drop: Collection[bytes] = (),
        shared: Mapping[bytes, bytes] | None = None,
        generation: int,
    ) -> int | None:
        self._call("save")
        own = self.redis.sessions.setdefault(session, {})
        for name in drop:
            own.pop(name, None)
        stays = not blocks or self.redis.erased.get(session, 0) <= generation
        written = 0
        if stays:
            own.update(blocks)
            written = sum(map(len, blocks.values()))
        for name, value in (shared or {}).items():
            if self.redis.shared.setdefault((session.tenant, name), value) is value:
                written += len(value)
        self.redis.written += written
        return written if stays else None

    def drop(self, session: SessionKey, names: Collection[bytes], shared_names: Collection[bytes] = ()) -> None:
        self._call("drop")
        for name in names:
            self.redis.sessions.get(session, {}).pop(name, None)
        for name in shared_names:
            self.redis.shared.pop((session.tenant, name), None)

    def close(self) -> None:
        self.closed = True


@dataclass
class Worker:
    """A cache with separate stores and host memory."""

    cache: KvCache
    loading: Store
    saving: Store
    host: HostCache[bytes]
    gate: LoadGate

    async def restored(
        self, ids: list[int], *, session: str = "a", tenant: str = "t", shared: int = len(SHARED), **how: Any
    ) -> Sequence:
        row = talk(ids, session=session, tenant=tenant, shared=shared)
        row.begin_with(await self.cache.find(row, first=how.get("first", False), standing=how.get("standing", 0)))
        if (values := row.prefix.values) is not None:
            assert np.array_equal(brought(values, row.computed), truth(ids)[:, :, :, : row.computed]), "byte for byte"
        return row

    def keep(self, row: Sequence, values: NDArray[Any] | None = None) -> None:
        """The sequence ends, and all of it is computed."""
        ids, kept = [*row.prompt_ids, *row.output_ids], row.prefix.kept
        self.cache.keep(row, kept, (truth(ids) if values is None else values)[:, :, :, kept:])
        self.saved()

    def saved(self) -> None:
        self.cache._saves.submit(lambda: None).result(LIMIT_S)

    async def turn(self, ids: list[int], **of: Any) -> Sequence:
        row = await self.restored(ids, **of)
        self.keep(row)
        return row


def talk(ids: list[int], *, shared: int = len(SHARED), **of: Any) -> Sequence:
    return sequence(ids=ids, shared_tokens=shared, **of)


def truth(ids: list[int]) -> NDArray[np.float32]:
    """The KV of these tokens: each depends on all before it."""
    sums = np.cumsum(np.array(ids, np.float32) * np.arange(1, len(ids) + 1, dtype=np.float32))
    cells = np.arange(LAYOUT.layers * 2 * LAYOUT.dim, dtype=np.float32).reshape(LAYOUT.layers, 2, 1, 1, LAYOUT.dim)
    return (cells + sums.reshape(1, 1, 1, -1, 1)).astype(np.float32)


def brought(kv: KvPieces, num_tokens: int) -> NDArray[Any]:
    """Return the tokens that the scheduler would have imported from it."""
    return np.concatenate([values for _, values in kv.between(0, num_tokens)], axis=3)


class Workers:
    """Workers on one Redis."""

    def __init__(self) -> None:
        self.redis = Redis()
        self._started: list[Worker] = []

    def start(
        self,
        *,
        ms_per_token: float = 10.0,
        host_bytes: int = 1 << 20,
        ttl_s: float = 3_600.0,
        disk: DiskTier | None = None,
    ) -> Worker:
        gate = LoadGate(probe_interval_ms=3_600_000.0)
        loading, saving = Store(self.redis), Store(self.redis)
        memory = KvMemory(max_bytes=host_bytes, ttl_s=ttl_s, disk=disk)
        namer = BlockNamer(salt=b"", layout_id="layout", block_tokens=BLOCK)
        costs = LinearCosts(ms_per_token, ms_per_token)
        loader = KvLoader(
            layout=LAYOUT,
            codec="exact",
            namer=namer,
            block_tokens=BLOCK,
            memory=memory,
            gate=gate,
            store=loading,  # type: ignore[arg-type]
            costs=costs,
        )
        saver = KvSaver(codec="exact", namer=namer, memory=memory, store=saving)  # type: ignore[arg-type]
        cache = KvCache(memory=memory, loader=loader, saver=saver, costs=costs)
        cache.start()
        self._started.append(Worker(cache, loading, saving, memory._host, gate))
        return self._started[-1]

    def close(self) -> None:
        for worker in self._started:
            worker.cache.close()


@pytest.fixture
def workers() -> Iterator[Workers]:
    workers = Workers()
    yield workers
    workers.close()


def dropped(reason: str) -> float:
    return REGISTRY.get_sample_value("replyline_kv_dropped_total", {"reason": reason}) or 0.0
