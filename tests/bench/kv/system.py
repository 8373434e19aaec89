"""Whole systems beside each other, alike but for the cache or one setting: what is measured of one is measured of all.

Each has its own embedded Kafka, Redis, gateway and worker. The one that is not asked at the moment is idle.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from rich.console import Console

from ops.load.system import System
from ops.stack.embedded import EmbeddedRedis
from ops.stack.processes import Child
from ops.texts.conversations import Conversation
from shared.settings import Settings
from tests.bench.kv.client import DEADLINE_MS, converse_all
from tests.bench.kv.counters import read_counters, read_settled_counters
from tests.chaos.hops.proxy import Proxy

REDIS_MB: Final = 4_096
"""Room for the cache of every conversation of a run: nothing is evicted while it is measured."""
HISTORY_TIMEOUT_MS: Final = 2_000
"""Of both systems: what was said before is in every prompt, also when the cores are busy or Redis is slow."""
_WARMUP_TOKENS: Final = 4
_WARMUP: Final = Conversation(
    id="warm-up",
    language="en",
    turns=("Good morning, is somebody there?", "Which of your shops is the nearest to Lund?", "Thank you, goodbye."),
)
_HOST_MIB: Final = "1024"  # all conversations of a cell: which level is measured is for the cell to say


@dataclass(slots=True, kw_only=True)
class Side:
    """One of the two. `proxy` stands between it and its Redis."""

    system: System
    redis: EmbeddedRedis
    proxy: Proxy | None
    url: str
    worker: Child
    metrics_url: str

    async def restart_worker(self) -> None:
        """Another worker in its place, which has nothing in memory. Raises `ServiceError`."""
        self.system.end(self.worker)
        self.worker, self.metrics_url = await self.system.start_worker()

    async def warm_up(self, clients: int) -> None:
        """Some questions that are not measured."""
        await converse_all(
            self.url,
            [_WARMUP] * clients,
            clients=clients,
            max_output_tokens=_WARMUP_TOKENS,
            most_turns=len(_WARMUP.turns),
            progress=lambda _: None,
        )

    def slow_redis(self, one_way_s: float) -> None:
        """Every byte to it and from it is so late from now on."""
        assert self.proxy is not None, "it has no proxy"
        self.proxy.delay_s = one_way_s

    async def kill_redis(self) -> None:
        """And nobody answers in its place."""
        self.redis.kill()
        if self.proxy is not None:
            await self.proxy.close()

    async def counters(self) -> dict[str, float]:
        return await read_counters(self.metrics_url)

    async def settled_counters(self) -> dict[str, float]:
        return await read_settled_counters(self.metrics_url)


@dataclass(frozen=True, slots=True)
class Pair:
    on: Side
    off: Side

    def in_turn(self, number: int) -> tuple[Side, Side]:
        """Both; who is first changes with the round."""
        return (self.on, self.off) if number % 2 else (self.off, self.on)


@asynccontextmanager
async def systems(settings: Settings, *, slots: int, behind_proxy: bool, console: Console) -> AsyncIterator[Pair]:
    """With the cache and without, both warm. Raises `ServiceError`."""
    console.print("starting two systems, with the cache and without")
    async with AsyncExitStack() as stack:
        with_cache = {**_env(slots), "KV__ENABLED": "true", "KV__HOST_MIB": _HOST_MIB}
        without = {**_env(slots), "KV__ENABLED": "false"}
        on, off = await asyncio.gather(
            _start(settings, with_cache, stack, behind_proxy=behind_proxy),
            _start(settings, without, stack, behind_proxy=behind_proxy),
        )
        for side in (on, off):
            await side.warm_up(slots)
        yield Pair(on, off)


@asynccontextmanager
async def alike(
    settings: Settings, envs: Sequence[Mapping[str, str]], *, slots: int, console: Console
) -> AsyncIterator[list[Side]]:
    """One with the cache for each of `envs`, which is all that they differ in, warm. Raises `ServiceError`."""
    console.print(f"starting {len(envs)} systems, all with the cache")
    async with AsyncExitStack() as stack:
        with_cache = {**_env(slots), "KV__ENABLED": "true", "KV__HOST_MIB": _HOST_MIB}
        starting = [_start(settings, {**with_cache, **env}, stack, behind_proxy=False) for env in envs]
        sides = await asyncio.gather(*starting)
        for side in sides:
            await side.warm_up(slots)
        yield list(sides)


def _env(slots: int) -> dict[str, str]:
    return {
        "WORKER__SLOTS": str(slots),
        "REDIS__TIMEOUT_MS": str(HISTORY_TIMEOUT_MS),
        "ADMISSION__ENABLED": "false",
        "PROMISE__FIRST_TOKEN_MS": str(DEADLINE_MS),
        "PROMISE__DEADLINE_MS": str(DEADLINE_MS),
        "PROMISE__MAX_DEADLINE_MS": str(DEADLINE_MS),
    }


async def _start(settings: Settings, env: dict[str, str], stack: AsyncExitStack, *, behind_proxy: bool) -> Side:
    redis = stack.enter_context(EmbeddedRedis(max_memory_mb=REDIS_MB))
    proxy, redis_url = None, redis.url
    if behind_proxy:
        proxy = await stack.enter_async_context(Proxy("127.0.0.1", redis.port))
        redis_url = redis.url.replace(f":{redis.port}/", f":{proxy.port}/")
    system = stack.enter_context(System(settings=settings, broker="embedded", env=env, redis_url=redis_url))
    await system.start_services()
    _, url = await system.start_gateway()
    worker, metrics_url = await system.start_worker()
    return Side(system=system, redis=redis, proxy=proxy, url=url, worker=worker, metrics_url=metrics_url)
