"""`replyline bench gateway`: how many streams one gateway process carries on one core, and what a connection holds.

Apache Kafka, a synthetic replier and the clients run on the other cores. A delta is late by its arrival at the client
minus the time at which the replier's plan had it due, by the machine's one monotonic clock. The same search, with the
same clients, is made on a bare websockets server that makes the deltas itself.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import psutil
from rich.console import Console

from ops.measure.quantiles import quantiles
from ops.measure.runner import show
from ops.measure.search import StepSearch
from ops.measure.usage import raise_file_limit, rss_bytes
from ops.stack.processes import Child, free_port, running_on
from ops.stack.system import System
from shared.errors import SettingsError
from shared.settings import Settings
from tests.bench.cell import FAILED, Bench, Cell, Figures, Measure, Target
from tests.bench.gateway.paced import DELTAS, INTERVAL_MS, Pool

GATEWAY: Final = "gateway"
BARE: Final = "bare websockets"
HELD: Final = "idle connections"
TARGETS: Final = (
    Target(cell=GATEWAY, figure="streams", value=500, at_least=True),
    Target(cell=GATEWAY, figure="streams", base=BARE, value=0.58, at_least=True),
    Target(cell=GATEWAY, figure="cpu_s_per_100k", value=3.2),
    Target(cell=HELD, figure="kib_each", value=20.0),
    Target(cell=HELD, figure="connects_per_s", value=1_500.0, at_least=True),
)
LATE_MS: Final = 20.0
_FIRST_HELD: Final = 100
_SETTLE_S: Final = 1.5
_TRIES: Final = 2  # a machine's hiccup is no server's limit
_SPARE_FILES: Final = 512
_KIB, _MIB = 1 << 10, 1 << 20
_ENV: Final = {
    "WORKER__ENGINE": "fake",
    "PROMISE__FIRST_TOKEN_MS": "60000",
    "PROMISE__DEADLINE_MS": "60000",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """The search is from `start` streams up, each load for `seconds`; `held` idle connections, 0 for none."""

    start: int
    limit: int
    seconds: float
    held: int


@dataclass(frozen=True, slots=True)
class _Server:
    """A measured process, its address, and the cores of its clients."""

    child: Child
    url: str
    load_cores: Sequence[int]


def two_sides() -> tuple[list[int], list[int]]:
    """One core for what is measured, the others for what loads it. Raises `SettingsError` on a single core."""
    available = sorted(os.sched_getaffinity(0))
    if len(available) < 2:
        raise SettingsError("this bench pins the gateway to a core of its own: run it where there are two or more")
    return available[-1:], available[:-1]


def _cpu_s(pid: int) -> float:
    """CPU seconds of all the process's threads so far."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def _busy_s(cores: Sequence[int]) -> float:
    """Seconds that these cores have worked so far, for whomever."""
    times = psutil.cpu_times(percpu=True)
    return float(sum(sum(times[core][:8]) - times[core].idle - times[core].iowait for core in cores))  # no guests


async def bench_gateway(settings: Settings, bench: Bench, options: GatewayOptions, console: Console) -> None:
    """Raises `ServiceError`."""
    server_cores, load_cores = two_sides()
    raise_file_limit(max(options.held, options.limit) + _SPARE_FILES)
    with running_on(load_cores), System(settings=settings, broker="kafka", env=_ENV) as system:
        await system.start_services()
        kafka = settings.kafka
        told = (system.bootstrap, str(kafka.request_partitions), kafka.topic_prefix)
        await system.start_program("tests.bench.gateway.replier", *told)

        @asynccontextmanager
        async def gateway() -> AsyncIterator[Measure]:
            child, url = await system.start_gateway(cores=server_cores)
            try:
                yield lambda _: _search(_Server(child, url, load_cores), options, console)
            finally:
                system.end(child)

        @asynccontextmanager
        async def bare() -> AsyncIterator[Measure]:
            port = free_port()
            child = await system.start_program("tests.bench.gateway.bare_websocket", str(port), cores=server_cores)
            try:
                yield lambda _: _search(_Server(child, f"ws://127.0.0.1:{port}/", load_cores), options, console)
            finally:
                system.end(child)

        @asynccontextmanager
        async def held() -> AsyncIterator[Measure]:
            child, url = await system.start_gateway(cores=server_cores)
            try:
                yield lambda _: _hold(child, url, options.held)
            finally:
                system.end(child)

        cells = [Cell(name=BARE, open=bare), Cell(name=GATEWAY, open=gateway, bases=(BARE,))]
        if options.held > _FIRST_HELD:
            cells.insert(0, Cell(name=HELD, open=held))
        await bench.run(cells, console)


async def _hold(child: Child, url: str, count: int) -> Figures:
    """Open idle connections on a fresh gateway; the first hundred are its warm-up, the last fifth gives the rate."""
    pid, pool = child.process.pid, Pool(url)
    try:
        await pool.open(_FIRST_HELD)
        await asyncio.sleep(1)
        before = rss_bytes(pid)
        most = count - max((count - _FIRST_HELD) // 5, 1)
        await pool.open(most)
        last_s = await pool.open(count)
        await asyncio.sleep(1)
        after = rss_bytes(pid)
    finally:
        pool.close()
    return {
        "kib_each": round((after - before) / _KIB / (count - _FIRST_HELD), 2),
        "gateway_mib": round(after / _MIB, 1),
        "connects_per_s": round((count - most) / last_s, 1),
    }


async def _search(server: _Server, options: GatewayOptions, console: Console) -> Figures:
    """The figures of the largest load that passes, where one does."""
    search = StepSearch(start=options.start, limit=options.limit)
    best: Figures = {"streams": 0.0}
    pool = Pool(server.url)
    try:
        while (streams := search.next_load()) is not None:
            for _ in range(_TRIES):
                step = await _measure(pool, server, streams, options.seconds)
                passed = _passes(step)
                said = ", ".join(f"{name} {show(value)}" for name, value in step.items())
                console.print(f"{'pass' if passed else 'fail'}: {said}", soft_wrap=True, highlight=False)
                if passed:
                    best = step
                    break
            search.passed(passed=passed)
    finally:
        pool.close()
    return best


def _passes(step: Figures) -> bool:
    late_ms = step["late_p99_ms"]
    return late_ms is not None and late_ms < LATE_MS and step[FAILED] == 0


async def _measure(pool: Pool, server: _Server, streams: int, seconds: float) -> Figures:
    """One load. Streams that are missing, or of which half the deltas are, count as failed."""
    pid = server.child.process.pid
    await pool.stream(streams, spread_s=DELTAS * INTERVAL_MS / 1_000)
    await asyncio.sleep(_SETTLE_S)
    pool.tally.reset()
    start_s, cpu_before, busy_before = time.monotonic(), _cpu_s(pid), _busy_s(server.load_cores)
    await asyncio.sleep(seconds)
    lateness, failures = pool.tally.lateness_ms, pool.tally.failures
    past_s, used_s = time.monotonic() - start_s, _cpu_s(pid) - cpu_before
    load_s = _busy_s(server.load_cores) - busy_before
    torn = len(lateness) <= streams * past_s * 1_000 / INTERVAL_MS / 2
    return {
        "streams": float(streams),
        "late_p99_ms": quantiles(lateness).p99,
        "deltas_per_s": round(len(lateness) / past_s, 1),
        "cpu_s_per_100k": round(used_s / max(1, len(lateness)) * 100_000, 3),
        "server_core": round(used_s / past_s, 3),
        "load_side": round(load_s / past_s / len(server.load_cores), 3),
        FAILED: failures + streams - pool.num_streaming + torn,
    }
