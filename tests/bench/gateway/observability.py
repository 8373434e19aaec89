"""`replyline bench observability`: what metrics and traces cost.

The engine takes no time, so what is left is the path's own work: a closed loop through Apache Kafka, one gateway and
one worker. Both are turned off and on again while they run (`tests.bench.gateway.switched`), in turns of half a second,
many times over: it is the same processes with and without, and what else the machine does meanwhile hits all alike. The
figure is the CPU time of gateway and worker for an answer, by the scheduler's clock; beside it answers a second."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec import Struct
from rich.console import Console

from ops.load.clients import Load, Question
from ops.load.system import System
from ops.measure.environment import environment
from ops.measure.interval import Interval, paired
from ops.measure.quantiles import median
from ops.measure.runner import Cell, check_writable, markdown, progress_bar, verdict, write_json
from ops.measure.usage import process_cpu_s
from ops.stack.processes import Child, ServiceError
from ops.texts.prompts import question
from shared.settings import Settings
from tests.bench.gateway.switched import MODES, Mode, signal_of
from tests.bench.gateway.trace_sink import trace_sink

MOST_CPU: Final = 1.05
_ENV: Final = {"WORKER__ENGINE": "fake", "WORKER__SLOTS": "64", "WORKER__PREFILL_CHUNK_TOKENS": "65536"}
_QUESTION_WORDS: Final = 8
_ANSWER_TOKENS: Final = 8
_BARE: Final = MODES[0]
_MOST_QUESTIONS: Final = 1_000_000
_WARM_UP_S: Final = 2.0
_SETTLE_S: Final = 0.12


class Variant(Struct, frozen=True, kw_only=True):
    """`mode` of the processes that keep `ratio` of the traces that went well."""

    name: str
    mode: Mode
    ratio: float


class Turn(Struct, frozen=True, kw_only=True):
    """`cpu_ms` of gateway and worker for one answer."""

    variant: str
    answers_per_s: float
    cpu_ms: float


class Cost(Struct, frozen=True, kw_only=True):
    """Of a variant's turns by those without anything, of the same processes in the same round."""

    variant: str
    cpu: Interval
    throughput: Interval


DEFAULT_RATIO: Final = 0.01
ALL_RATIO: Final = 1.0
VARIANTS: Final = (
    Variant(name="neither", mode="neither", ratio=DEFAULT_RATIO),
    Variant(name="metrics", mode="metrics", ratio=DEFAULT_RATIO),
    Variant(name="metrics and traces", mode="metrics and traces", ratio=DEFAULT_RATIO),
    Variant(name="neither, where every trace is kept", mode="neither", ratio=ALL_RATIO),
    Variant(name="metrics and every trace", mode="metrics and traces", ratio=ALL_RATIO),
)


@dataclass(frozen=True, slots=True)
class _Running:
    """A gateway and a worker on topics of their own."""

    gateway: Child
    worker: Child
    url: str

    def cpu_s(self) -> float:
        return process_cpu_s(self.gateway.process.pid) + process_cpu_s(self.worker.process.pid)

    def switch(self, mode: Mode) -> None:
        for child in (self.gateway, self.worker):
            child.signal(signal_of(mode))


async def bench_observability(
    settings: Settings, console: Console, *, rounds: int, seconds: float, clients: int, json_path: Path | None
) -> None:
    check_writable(json_path)
    facts = environment(engine="fake, no latency", broker="kafka")
    measured: list[Turn] = []
    failed = 0
    console.print("starting Apache Kafka and Redis; then a gateway and a worker, and another two that keep every trace")
    async with trace_sink() as sink:
        with System(settings=settings, broker="kafka", env=_ENV) as system:
            await system.start_services()
            # What every trace costs is far from nothing: it is seen in fewer rounds.
            for ratio, count in ((DEFAULT_RATIO, rounds), (ALL_RATIO, math.ceil(rounds / 3))):
                running = await _start(system, ratio, sink.endpoint)
                with progress_bar(console, f"rounds, {ratio:.0%} of the traces", count) as progress:
                    async with _asking(running, clients) as load:
                        measured += await _rounds(running, load, ratio, count, seconds, progress)
                failed += sum(not outcome.by_model for outcome in load.outcomes if outcome.done_s is not None)
                for child in (running.worker, running.gateway):
                    system.end(child)
    found = costs(measured)
    _print(measured, found, failed)
    result = {
        "costs": found, "failed": failed, "turns": measured, "trace_bytes": sink.num_bytes, "environment": facts,
    }  # fmt: skip
    write_json(json_path, result)


async def _rounds(
    running: _Running, load: Load, ratio: float, count: int, seconds: float, progress: Callable[[int], None]
) -> list[Turn]:
    """Each variant goes first as often as the others: what drifts meanwhile hits all alike."""
    variants = [variant for variant in VARIANTS if variant.ratio == ratio]
    measured: list[Turn] = []
    for number in range(count):
        first = number % len(variants)
        for variant in (*variants[first:], *variants[:first]):
            measured.append(await _turn(running, load, variant, seconds))  # noqa: PERF401 - one after the other
        progress(number + 1)
    return measured


async def _start(system: System, ratio: float, endpoint: str) -> _Running:
    prefix = f"keep-{ratio:g}."
    kafka = system.settings.kafka.model_copy(update={"topic_prefix": prefix})
    await system.create_topics(
        kafka.topics.all(request_partitions=kafka.request_partitions, reply_partitions=kafka.reply_partitions)
    )
    tracing = {"TRACING__ENDPOINT": endpoint, "TRACING__RATIO": str(ratio)}
    system.env = {**_ENV, "KAFKA__TOPIC_PREFIX": prefix, **tracing}
    gateway, url = await system.start_gateway(switched=True)
    worker, _ = await system.start_worker(switched=True)
    return _Running(gateway, worker, url)


@asynccontextmanager
async def _asking(running: _Running, clients: int) -> AsyncIterator[Load]:
    """A closed loop that goes on until it is left; begun a while ago."""
    load = Load(url=running.url, max_inflight=1)
    limits = await load.open(clients)
    text = question(_QUESTION_WORDS, 0)
    one = Question(text=text, max_output_tokens=_ANSWER_TOKENS, deadline_ms=limits.deadline_ms)
    task = asyncio.ensure_future(load.closed_loop([one] * _MOST_QUESTIONS, clients, lambda _: None))
    try:
        await asyncio.sleep(_WARM_UP_S)
        yield load
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        load.close()


async def _turn(running: _Running, load: Load, variant: Variant, seconds: float) -> Turn:
    """What stood in the pipes when it began was the turn's before: it is let out first. Raises `ServiceError`."""
    running.switch(variant.mode)
    await asyncio.sleep(_SETTLE_S)
    start_s, cpu_s, settled = time.monotonic(), running.cpu_s(), load.num_settled
    await asyncio.sleep(seconds)
    took_s, used_s, answers = time.monotonic() - start_s, running.cpu_s() - cpu_s, load.num_settled - settled
    if not answers:
        raise ServiceError(f"no answer came in {seconds:g} s; run it on a quieter machine, or give more --seconds")
    return Turn(
        variant=variant.name, answers_per_s=round(answers / took_s, 1), cpu_ms=round(used_s * 1_000 / answers, 4)
    )


def costs(measured: Sequence[Turn]) -> list[Cost]:
    """Of each variant that observes anything."""
    turns = {variant.name: [one for one in measured if one.variant == variant.name] for variant in VARIANTS}
    bare = {variant.ratio: turns[variant.name] for variant in VARIANTS if variant.mode == _BARE}
    return [
        Cost(
            variant=variant.name,
            cpu=paired([one.cpu_ms for one in turns[variant.name]], [one.cpu_ms for one in bare[variant.ratio]]),
            throughput=paired(
                [one.answers_per_s for one in turns[variant.name]], [one.answers_per_s for one in bare[variant.ratio]]
            ),
        )
        for variant in VARIANTS
        if variant.mode != _BARE
    ]


def _print(measured: Sequence[Turn], found: Sequence[Cost], failed: int) -> None:
    by_name = {cost.variant: cost for cost in found}
    lines: list[list[Cell]] = []
    for variant in VARIANTS:
        turns = [one for one in measured if one.variant == variant.name]
        cost = by_name.get(variant.name)
        lines.append(
            [
                variant.name,
                round(median([one.cpu_ms for one in turns]), 3),
                str(cost.cpu) if cost else None,
                round(median([one.answers_per_s for one in turns]), 1),
                str(cost.throughput) if cost else None,
                verdict(round(cost.cpu.value, 3), MOST_CPU) if cost and variant.ratio == DEFAULT_RATIO else "",
            ]
        )
    header = ("", "CPU ms an answer", "of neither (95 %)", "answers/s", "of neither (95 %)", "target")
    print(markdown(header, lines))
    print(f"answers that were not the model's: {failed}")
