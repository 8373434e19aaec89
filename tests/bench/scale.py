"""`replyline bench scale`: answers per second as workers and gateways are added, compared with linear growth.

Apache Kafka, Redis, scripted engines: an engine sleeps for an answer's compute time, so a few cores carry many workers,
and the rest is the system's overhead. A closed loop keeps every slot requested. If the machine's cores are full the
curve bends for that reason alone: their share is a row of the table.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import psutil
from rich.console import Console

from ops.lab.client.load import LoadRun
from ops.lab.client.outcome import Outcome
from ops.lab.client.plan import plan_of
from ops.lab.texts.prompts import question
from ops.measure.quantiles import quantiles
from ops.stack.system import System
from shared.errors import SettingsError
from shared.settings import Settings
from tests.bench.cell import FAILED, Bench, Cell, Figures, Measure

SIZES: Final = ((1, 1), (2, 1), (4, 1), (8, 1), (8, 2), (8, 4))
"""Workers and gateways of each cell."""
_SLOTS: Final = 8
_STEP_MS: Final = 50.0
_TOKENS: Final = 16
_ANSWERS_OF_A_SLOT: Final = 12
_CONNECTIONS_OF_A_SLOT: Final = 3
_QUESTION_WORDS: Final = 8
_ENV: Final = {
    "WORKER__ENGINE": "fake",
    "WORKER__SLOTS": str(_SLOTS),
    "WORKER__FAKE_DECODE_MS_PER_STEP": str(_STEP_MS),
    "WORKER__PREFILL_CHUNK_TOKENS": "65536",
    "PROMISE__FIRST_TOKEN_MS": "30000",
    "PROMISE__DEADLINE_MS": "60000",
    "ADMISSION__ENABLED": "false",
}


def name_of(workers: int, gateways: int) -> str:
    """Return a cell's name."""
    return f"{workers} workers, {gateways} gateways"


def parse_sizes(text: str) -> list[tuple[int, int]]:
    """Return the sizes in `1x1,2x1`, workers x gateways. Raises `SettingsError`."""
    try:
        sizes = [tuple(map(int, part.split("x"))) for part in text.split(",")]
    except ValueError:
        sizes = []
    if not sizes or any(len(size) != len(SIZES[0]) or min(size) < 1 for size in sizes):
        raise SettingsError(f"--sizes {text}: write workers x gateways, comma-separated: 1x1,2x1,4x2")
    return [(workers, gateways) for workers, gateways in sizes]


async def bench_scale(settings: Settings, bench: Bench, sizes: Sequence[tuple[int, int]], console: Console) -> None:
    """Measure each size; its figures are compared with the first one's. Raises `ServiceError`."""
    if max(gateways for _, gateways in sizes) > settings.kafka.reply_partitions:
        raise SettingsError(f"--sizes: at most {settings.kafka.reply_partitions} gateways have a reply partition")
    with System(settings=settings, broker="kafka", env=_ENV) as system:
        await system.start_services()
        first = name_of(*sizes[0])
        cells = [_cell(system, workers, gateways, first) for workers, gateways in sizes]
        await bench.run(cells, console)


def _cell(system: System, workers: int, gateways: int, first: str) -> Cell:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Measure]:
        async with AsyncExitStack() as ending:
            urls = []
            for number in range(gateways):
                child, url = await system.start_gateway(env={"GATEWAY__REPLY_PARTITION": str(number)})
                ending.callback(system.end, child)
                urls.append(url)
            for _ in range(workers):
                child, _ = await system.start_worker()
                ending.callback(system.end, child)

            async def measure(_: int) -> Figures:
                return await _measure(urls, workers)

            yield measure

    name = name_of(workers, gateways)
    return Cell(name=name, open=opened, bases=() if name == first else (first,))


async def _measure(urls: Sequence[str], workers: int) -> Figures:
    clients = workers * _SLOTS // len(urls)
    limits = await LoadRun(urls[0]).look()
    texts = [question(_QUESTION_WORDS, at) for at in range(clients * _ANSWERS_OF_A_SLOT)]
    plan = plan_of(texts, limits, max_output_tokens=_TOKENS)
    psutil.cpu_percent()
    loads = [LoadRun(url, connections=clients * _CONNECTIONS_OF_A_SLOT) for url in urls]
    outcomes = [
        one for part in await asyncio.gather(*(load.run(plan, clients=clients) for load in loads)) for one in part
    ]
    busy = psutil.cpu_percent() / 100
    answered = [one for one in outcomes if one.by_model]
    ttft = quantiles([one.ttft_ms for one in answered if one.ttft_ms is not None])
    return {
        "answers_per_s": _rate(answered),
        "of_linear": _rate(answered) / (workers * _SLOTS * 1_000 / (_TOKENS * _STEP_MS)),
        "ttft_p50_ms": ttft.p50,
        "ttft_p99_ms": ttft.p99,
        "cores_busy": busy,
        FAILED: len(outcomes) - len(answered),
    }


def _rate(answered: Sequence[Outcome]) -> float:
    """Return the answers a second of the middle half of the time: at both ends not all clients ask."""
    ends = sorted(one.done_s for one in answered if one.done_s is not None)
    middle = ends[len(ends) // 4 : len(ends) * 3 // 4]
    return (len(middle) - 1) / (middle[-1] - middle[0])
