"""`replyline bench gateway`: how many streams one gateway process carries on one core.

Apache Kafka, a synthetic replier and the clients run on the other cores. A delta is late by its arrival at the client
minus the time at which the replier's plan had it due, by the machine's one monotonic clock. The same search, with the
same clients, is made on a bare websockets server that makes the deltas itself.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec import Struct
from rich.console import Console

from ops.load.system import System
from ops.measure.environment import environment
from ops.measure.quantiles import Quantiles, median, quantiles
from ops.measure.runner import Cell, check_writable, markdown, show, verdict, write_json
from ops.measure.search import StepSearch
from ops.measure.usage import busy_s, cpu_s, raise_file_limit, rss_bytes, running_on, two_sides
from ops.stack.processes import Child, free_port
from shared.settings import Settings
from tests.bench.gateway.paced import DELTAS, INTERVAL_MS
from tests.bench.gateway.paced_client import Pool

LATE_MS: Final = 20.0
STREAMS_TARGET: Final = 500
RATIO_TARGET: Final = 0.58
CPU_TARGET_S: Final = 3.2
HELD_TARGET_KIB: Final = 20.0
CONNECTS_TARGET: Final = 1_500.0
_FIRST_HELD: Final = 100
_SETTLE_S: Final = 1.5
_TRIES: Final = 2
_SPARE_FILES: Final = 512
_ENV: Final = {
    "WORKER__ENGINE": "fake",
    "PROMISE__FIRST_TOKEN_MS": "60000",
    "PROMISE__DEADLINE_MS": "60000",
}


class Step(Struct, frozen=True, kw_only=True):
    """One load, held for the measured seconds. `load_cores_busy` tells whether the clients' side was at its end."""

    streams: int
    passed: bool
    lateness_ms: Quantiles
    deltas_per_s: float
    failures: int
    cpu_s_per_100k: float
    server_core: float
    load_cores_busy: float


class Held(Struct, frozen=True, kw_only=True):
    """Idle connections: what one costs in resident memory, and how fast they were opened."""

    connections: int
    kib_each: float
    connects_per_s: float
    last_connects_per_s: float


class Search(Struct, frozen=True, kw_only=True):
    server: str
    streams: int
    best: Step | None
    steps: list[Step]


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityOptions:
    start: int
    limit: int
    seconds: float
    rounds: int
    held: int
    json_path: Path | None


async def bench_gateway(settings: Settings, options: CapacityOptions, console: Console) -> None:
    check_writable(options.json_path)
    server_cores, load_cores = two_sides()
    raise_file_limit(max(options.held, options.limit) + _SPARE_FILES)
    facts = environment(engine="synthetic replier", broker="kafka")
    searches: list[Search] = []
    held: Held | None = None
    with running_on(load_cores), System(settings=settings, broker="kafka", env=_ENV) as system:
        await system.start_services()
        await _start_replier(system, settings)
        if options.held > _FIRST_HELD:
            async with _gateway(system, server_cores) as (child, url):
                held = await _hold(child, url, options.held, console)
        for _ in range(options.rounds):
            for name, server in (("gateway", _gateway), ("bare websockets", _bare)):
                async with server(system, server_cores) as (child, url):
                    searches.append(await _search(name, child, url, options, load_cores, console))
    _print(searches, held)
    write_json(options.json_path, {**_result(searches), "held": held, "searches": searches, "environment": facts})


async def _start_replier(system: System, settings: Settings) -> None:
    arguments = {
        "--bootstrap": system.bootstrap,
        "--prefix": settings.kafka.topic_prefix,
        "--partitions": str(settings.kafka.request_partitions),
        "--deltas": str(DELTAS),
        "--interval-ms": str(INTERVAL_MS),
    }
    await system.start_program("tests.bench.gateway.replier", *(f"{name}={value}" for name, value in arguments.items()))


@asynccontextmanager
async def _gateway(system: System, cores: Sequence[int]) -> AsyncIterator[tuple[Child, str]]:
    child, url = await system.start_gateway(cores=cores)
    yield child, url
    system.end(child)


@asynccontextmanager
async def _bare(system: System, cores: Sequence[int]) -> AsyncIterator[tuple[Child, str]]:
    port = free_port()
    arguments = (f"--port={port}", f"--deltas={DELTAS}", f"--interval-ms={INTERVAL_MS}")
    child = await system.start_program("tests.bench.gateway.bare_websocket", *arguments, cores=cores)
    yield child, f"ws://127.0.0.1:{port}/"
    system.end(child)


async def _hold(child: Child, url: str, count: int, console: Console) -> Held:
    """Open idle connections on a fresh gateway; the first hundred are its warm-up."""
    console.print(f"holding {count} idle connections")
    pool = Pool(url)
    try:
        await pool.open(_FIRST_HELD)
        await asyncio.sleep(1)
        before = rss_bytes(child.process.pid)
        most = count - max((count - _FIRST_HELD) // 5, 1)
        first_s = await pool.open(most)
        last_s = await pool.open(count)
        await asyncio.sleep(1)
        grown = rss_bytes(child.process.pid) - before
    finally:
        pool.close()
    opened = count - _FIRST_HELD
    return Held(
        connections=count,
        kib_each=round(grown / 1_024 / opened, 2),
        connects_per_s=round(opened / (first_s + last_s), 1),
        last_connects_per_s=round((count - most) / last_s, 1),
    )


async def _search(
    name: str, child: Child, url: str, options: CapacityOptions, load_cores: Sequence[int], console: Console
) -> Search:
    search = StepSearch(start=options.start, limit=options.limit)
    steps: list[Step] = []
    pool = Pool(url)
    try:
        while (streams := search.next_load()) is not None:
            for _ in range(_TRIES):  # a machine's hiccup is no server's limit
                step = await _measure(pool, child, streams, options.seconds, load_cores)
                steps.append(step)
                console.print(f"{name}: {_line(step)}", soft_wrap=True, highlight=False)
                if step.passed:
                    break
            search.passed(passed=steps[-1].passed)
    finally:
        pool.close()
    best = next((step for step in reversed(steps) if step.passed and step.streams == search.best), None)
    return Search(server=name, streams=search.best, best=best, steps=steps)


async def _measure(pool: Pool, child: Child, streams: int, seconds: float, load_cores: Sequence[int]) -> Step:
    pid = child.process.pid
    await pool.stream(streams, spread_s=DELTAS * INTERVAL_MS / 1_000)
    await asyncio.sleep(_SETTLE_S)
    pool.tally.reset()
    start_s, cpu_before, busy_before = time.monotonic(), cpu_s(pid), busy_s(load_cores)
    await asyncio.sleep(seconds)
    lateness, failures = pool.tally.lateness_ms, pool.tally.failures
    past_s, used_s = time.monotonic() - start_s, cpu_s(pid) - cpu_before
    figures = quantiles(lateness)
    expected = streams * past_s * 1_000 / INTERVAL_MS
    whole = pool.num_streaming == streams and len(lateness) > expected / 2
    return Step(
        streams=streams,
        passed=whole and figures.p99 is not None and figures.p99 < LATE_MS and not failures,
        lateness_ms=figures,
        deltas_per_s=round(len(lateness) / past_s, 1),
        failures=failures,
        cpu_s_per_100k=round(used_s / max(1, len(lateness)) * 100_000, 3),
        server_core=round(used_s / past_s, 3),
        load_cores_busy=round((busy_s(load_cores) - busy_before) / past_s / len(load_cores), 3),
    )


def _line(step: Step) -> str:
    late = step.lateness_ms
    parts = [
        f"{step.streams} streams {'pass' if step.passed else 'fail'}",
        f"late p50 {show(late.p50)} p99 {show(late.p99)} ms",
        f"{show(step.deltas_per_s)} deltas/s",
        f"{show(step.cpu_s_per_100k)} CPU s per 100k",
        f"core {step.server_core:.0%}, load side {step.load_cores_busy:.0%}",
        f"failures {step.failures}",
    ]
    return ", ".join(parts)


def _result(searches: Sequence[Search]) -> dict[str, object]:
    """Medians over the rounds; the ratio is taken round by round."""
    ours = [search for search in searches if search.server == "gateway"]
    bare = [search for search in searches if search.server != "gateway"]
    ratios = [mine.streams / other.streams if other.streams else 0.0 for mine, other in zip(ours, bare, strict=True)]
    return {
        "streams": median([float(search.streams) for search in ours]),
        "bare_streams": median([float(search.streams) for search in bare]),
        "ratio": round(median(ratios), 3),
        "cpu_s_per_100k": median([search.best.cpu_s_per_100k if search.best else 0.0 for search in ours]),
    }


def _print(searches: Sequence[Search], held: Held | None) -> None:
    header = ("server", "streams", "deltas/s", "late p99 ms", "CPU s per 100k deltas", "its core", "load side")
    rows: list[list[Cell]] = []
    for search in searches:
        best = search.best
        cells: list[Cell] = [search.server, search.streams]
        if best is not None:
            shares = [f"{best.server_core:.0%}", f"{best.load_cores_busy:.0%}"]
            cells += [best.deltas_per_s, best.lateness_ms.p99, best.cpu_s_per_100k, *shares]
        rows.append([*cells, *([None] * (len(header) - len(cells)))])
    print(markdown(header, rows))
    result = _result(searches)
    for name, key, target in (
        ("streams", "streams", STREAMS_TARGET),
        ("of the bare server's", "ratio", RATIO_TARGET),
    ):
        value = float(str(result[key]))
        print(f"{name}: {show(value)} ({verdict(value, target, at_least=True)})")
    cpu = float(str(result["cpu_s_per_100k"]))
    print(f"CPU s per 100k deltas: {show(cpu)} ({verdict(cpu, CPU_TARGET_S)})")
    if held is not None:
        goal = verdict(held.kib_each, HELD_TARGET_KIB)
        print(f"KiB a held connection at {held.connections}: {show(held.kib_each)} ({goal})")
        rates = f"{show(held.connects_per_s)}, the last fifth {show(held.last_connects_per_s)}"
        print(f"connects/s: {rates} ({verdict(held.last_connects_per_s, CONNECTS_TARGET, at_least=True)})")
