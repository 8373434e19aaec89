"""`replyline bench overload`: what clients get while more is asked than can be answered, and how soon it is over.

A broker, Redis, one gateway, one worker; its capacity is measured first, in a closed loop. Then an open loop, each
request at its own time whatever became of those before: half of the capacity, 1.5, 3 and 10 times it, half again.
The limits on a connection are those that ship; so many connections share the load that none meets them.
"""

import asyncio
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Final, Literal

from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from ops.load.system import Broker, System
from ops.measure.arrivals import schedule
from ops.measure.environment import environment
from ops.measure.metrics_page import read_metrics
from ops.measure.runner import check_writable, write_json
from ops.measure.usage import busy_s, cores, cpu_s, raise_file_limit
from ops.stack.processes import ServiceError
from ops.texts.prompts import question
from shared.errors import SettingsError
from shared.settings import Settings
from shared.wire.messages import Limits
from tests.bench.overload.client import Clients
from tests.bench.overload.outcome import LOADS, WARM_UP, Asked, Ending, Overload, Phase, row_of, summarise
from tests.bench.overload.table import show_overload

FIRST_TOKEN_MS: Final = 2_000
DEADLINE_MS: Final = 4_000
_SLOTS: Final = 8
_QUESTION_WORDS: Final = 24
_ANSWER_TOKENS: Final = 16
# As the CPU engine: a step of eight rows, and a prompt; the fake engine's tokens are bytes, six of a word's one.
_FAKE_DECODE_MS: Final = 13.0
_FAKE_PREFILL_MS: Final = 0.1
_CLOSED_LOOP_CLIENTS: Final = 3 * _SLOTS
_SATURATED_AFTER_S: Final = 2.0
_CAPACITY_S: Final = 8.0
_PATIENT_MS: Final = 60_000
_WARM_UP_S: Final = 5.0
_LEAD_S: Final = 0.2
_HEADROOM: Final = 1.25
_SPARE_FILES: Final = 256
_SPARE_ARRIVALS: Final = 50
_MOST_CONNECTIONS: Final = 4_000
_LEAST_SECONDS: Final = 1.0
_MOST_SECONDS: Final = 600.0
_FALLBACKS: Final = "replyline_gateway_fallbacks_total"
_BEGUN: Final = "replyline_worker_queue_seconds_count"
_BEGUN_LATE: Final = "replyline_worker_begun_late_total"


@dataclass(frozen=True, slots=True, kw_only=True)
class OverloadOptions:
    """`seconds` of each phase but the warm-up."""

    seconds: float
    seed: int
    engine: Literal["fake", "onnx"]
    broker: Broker
    json_path: Path | None

    def check(self) -> None:
        """Raises `SettingsError`."""
        if not _LEAST_SECONDS <= self.seconds <= _MOST_SECONDS:
            raise SettingsError(f"--seconds {self.seconds:g}: must be {_LEAST_SECONDS:g} to {_MOST_SECONDS:g}")
        check_writable(self.json_path)


@dataclass(frozen=True, slots=True)
class Measured:
    overload: Overload
    asked: list[Asked]


async def bench_overload(settings: Settings, options: OverloadOptions, console: Console) -> None:
    options.check()
    facts = environment(engine=f"{options.engine}, {_SLOTS} slots", broker=options.broker)
    overload = (await measure_overload(settings, options, console)).overload
    print(show_overload(overload))
    asked = {"seconds": options.seconds, "seed": options.seed, "engine": options.engine, "broker": options.broker}
    write_json(options.json_path, {**asked, "overload": overload, "environment": facts})


async def measure_overload(settings: Settings, options: OverloadOptions, console: Console) -> Measured:
    """Raises `ServiceError`, `ConnectFailed`."""
    raise_file_limit(_MOST_CONNECTIONS + _SPARE_FILES)
    console.print(f"starting Kafka ({options.broker}), Redis, a gateway and a worker ({options.engine})")
    with System(settings=settings, broker=options.broker, env=_env(settings, options)) as system:
        await system.start_services()
        gateway, url = await system.start_gateway()
        worker, worker_page = await system.start_worker()
        clients = Clients(url=url, text=_question, max_output_tokens=_ANSWER_TOKENS)
        watch = _Watch(
            metrics_url=system.metrics_of(gateway),
            pids={"gateway": gateway.process.pid, "worker": worker.process.pid, "client": os.getpid()},
        )
        try:
            limits = await clients.open(_CLOSED_LOOP_CLIENTS)
            capacity = await _capacity(clients, min(_CAPACITY_S, options.seconds * 2), console)
            num_connections = _num_connections(capacity * max(load for _, load in LOADS), limits)
            await clients.open(num_connections)
            phases = _phases(capacity, options.seconds)
            readings = await _drive(clients, phases, watch, options.seed, console)
            counts = await asyncio.to_thread(_counts, worker_page)
        finally:
            clients.close()
    rows = [
        row_of(phase, clients.asked, by_reason=after.fallbacks_since(before), cpu=after.cpu_since(before))
        for phase, (before, after) in zip(phases, pairwise(readings), strict=True)
    ]
    overload = summarise(
        rows,
        phases,
        clients.asked,
        capacity_per_s=capacity,
        connections=num_connections,
        first_token_ms=FIRST_TOKEN_MS,
        deadline_ms=DEADLINE_MS,
        begun=counts[_BEGUN],
        begun_late=counts[_BEGUN_LATE],
    )
    return Measured(overload, clients.asked)


def _env(settings: Settings, options: OverloadOptions) -> dict[str, str]:
    """The gateway's limits as they ship; a prompt is its question alone, so that requests cost alike."""
    gateway = settings.gateway
    env = {
        "GATEWAY__MESSAGES_PER_MINUTE": str(gateway.messages_per_minute),
        "GATEWAY__MAX_INFLIGHT": str(gateway.max_inflight),
        "PROMISE__FIRST_TOKEN_MS": str(FIRST_TOKEN_MS),
        "PROMISE__DEADLINE_MS": str(DEADLINE_MS),
        "WORKER__ENGINE": options.engine,
        "WORKER__SLOTS": str(_SLOTS),
        "WORKER__SYSTEM_PROMPT": "",
        "WORKER__GROUNDING_ENTRIES": "0",
        "WORKER__HISTORY_TURNS": "0",
    }
    if options.engine == "fake":
        worker = settings.worker
        env["WORKER__FAKE_PREFILL_MS_PER_TOKEN"] = str(worker.fake_prefill_ms_per_token or _FAKE_PREFILL_MS)
        env["WORKER__FAKE_DECODE_MS_PER_STEP"] = str(worker.fake_decode_ms_per_step or _FAKE_DECODE_MS)
    return env


def _question(number: int) -> str:
    return question(_QUESTION_WORDS, number)


async def _capacity(clients: Clients, seconds: float, console: Console) -> float:
    """Model answers a second while more are asked than there are slots; two seconds until it is in its stride.

    Raises `ServiceError` where there is none.
    """
    console.print(f"measuring the capacity: {_CLOSED_LOOP_CLIENTS} clients in a closed loop")
    start_s = time.monotonic() + _SATURATED_AFTER_S
    await clients.closed_loop(_CLOSED_LOOP_CLIENTS, seconds=_SATURATED_AFTER_S + seconds, deadline_ms=_PATIENT_MS)
    stop_s = start_s + seconds
    answered = sum(
        one.ending is Ending.IN_TIME and one.done_s is not None and start_s <= one.done_s < stop_s
        for one in clients.asked
    )
    if not answered:
        raise ServiceError("the model answers nothing; look whether a worker runs: replyline doctor")
    return answered / seconds


def _phases(capacity_per_s: float, seconds: float) -> list[Phase]:
    """One after the other, without a pause, from a moment on."""
    phases: list[Phase] = []
    at_s = time.monotonic() + _LEAD_S
    for name, load in LOADS:
        length_s = min(_WARM_UP_S, seconds) if name == WARM_UP else seconds
        phases.append(Phase(name=name, load=load, rate=load * capacity_per_s, start_s=at_s, seconds=length_s))
        at_s += length_s
    return phases


def _num_connections(rate: float, limits: Limits) -> int:
    """So many that neither limit of a connection (messages a minute, in flight) is met by the load itself."""
    by_rate = rate * 60 / limits.messages_per_minute
    by_inflight = rate * DEADLINE_MS / 1_000 / limits.max_inflight
    return max(_CLOSED_LOOP_CLIENTS, math.ceil(max(by_rate, by_inflight) * _HEADROOM))


async def _drive(
    clients: Clients, phases: Sequence[Phase], watch: "_Watch", seed: int, console: Console
) -> list["_Reading"]:
    """Ask what is due in each phase. Returns a reading of each phase's start, and of the last one's end."""
    due = [
        Asked(due_s=phase.start_s + offset, first_token_ms=FIRST_TOKEN_MS, deadline_ms=DEADLINE_MS)
        for number, phase in enumerate(phases)
        for offset in _offsets(phase, seed + number)
    ]
    reading = asyncio.create_task(watch.read_at_edges(phases, console))
    try:
        await clients.open_loop(due)
        return await reading
    finally:
        reading.cancel()


def _offsets(phase: Phase, seed: int) -> Iterator[float]:
    """Poisson arrivals, in seconds from the phase's start, over the whole of it."""
    most = math.ceil(phase.rate * phase.seconds * 2) + _SPARE_ARRIVALS
    times = schedule("poisson", rate=phase.rate, count=most, seed=seed)
    return takewhile(lambda at_s: at_s < phase.seconds, times)


@dataclass(frozen=True, slots=True)
class _Reading:
    """What the processes had used, and which fallbacks the gateway had counted, at a phase's edge."""

    at_s: float
    cpu_s: Mapping[str, float]
    fallbacks: Mapping[str, int]

    def cpu_since(self, before: "_Reading") -> dict[str, float]:
        """Cores in use, on the mean."""
        past_s = self.at_s - before.at_s
        cores_used = {name: (used_s - before.cpu_s[name]) / past_s for name, used_s in self.cpu_s.items()}
        return {name: max(0.0, used) for name, used in cores_used.items()}  # the kernel counts a machine's by samples

    def fallbacks_since(self, before: "_Reading") -> dict[str, int]:
        counts = {reason: count - before.fallbacks.get(reason, 0) for reason, count in self.fallbacks.items()}
        return {reason: count for reason, count in sorted(counts.items()) if count}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watch:
    """Reads the processes' CPU times, those of all others on the machine, and the gateway's counters."""

    metrics_url: str
    pids: Mapping[str, int]

    async def read_at_edges(self, phases: Sequence[Phase], console: Console) -> list[_Reading]:
        readings: list[_Reading] = []
        for phase in phases:
            await asyncio.sleep(phase.start_s - time.monotonic())
            readings.append(await self._read())
            console.print(f"{phase.name}: {phase.rate:.1f} requests/s, {phase.seconds:g} s", highlight=False)
        await asyncio.sleep(phases[-1].end_s - time.monotonic())
        return [*readings, await self._read()]

    async def _read(self) -> _Reading:
        used_s = {name: cpu_s(pid) for name, pid in self.pids.items()}
        used_s["others"] = busy_s(cores()) - sum(used_s.values())
        return _Reading(time.monotonic(), used_s, await asyncio.to_thread(_fallbacks, self.metrics_url))


def _fallbacks(url: str) -> dict[str, int]:
    return {
        sample.labels["reason"]: int(sample.value)
        for family in text_string_to_metric_families(read_metrics(url))
        for sample in family.samples
        if sample.name == _FALLBACKS
    }


def _counts(url: str) -> dict[str, int]:
    """Of a worker: what it has begun, and what of it late."""
    return {
        sample.name: int(sample.value)
        for family in text_string_to_metric_families(read_metrics(url))
        for sample in family.samples
        if sample.name in {_BEGUN, _BEGUN_LATE}
    }
