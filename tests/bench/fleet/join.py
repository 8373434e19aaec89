"""`replyline bench join`: what a worker that joins, leaves or dies stops of the others, on Apache Kafka.

Four workers stream long answers and are asked short ones all the time. Each event is watched in three systems, one
after the other: with aiokafka's default assignor, with ours, and with ours and an id for each worker. The first row of
each is a window in which nothing happens: what is no more than there is the machine's.
"""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct
from rich.console import Console

from gateway.kafka.fleet_reader import read_reports
from ops.load.connection import ChatConnection
from ops.load.figures.outcome import Outcome
from ops.load.system import System
from ops.measure.environment import environment
from ops.measure.runner import check_writable, markdown, write_json
from ops.stack.own_services import own_kafka
from ops.stack.processes import Child, ServiceError
from ops.texts.prompts import question
from shared.kafka import PartitionReader
from shared.settings import Settings
from shared.wire.messages import ResponseCreate, SessionStart, WorkerReport
from shared.wire.partitioner import partition_of
from shared.wire.topics import BROADCAST_PARTITION, BUCKETS, session_key

_WORKERS: Final = 4
_PARTITIONS: Final = 24
_STREAMS: Final = 8
_ASKERS: Final = 24
_STREAM_TOKENS: Final = 125  # 5 s
_QUESTION_TOKENS: Final = 4
_PAUSE_S: Final = 0.5
_KEYS: Final = 1_000
_SETTLED_S: Final = 2.0
_POLL_S: Final = 0.05
_FRESH_S: Final = 2.0
_LONGEST_S: Final = 90.0
_INTERRUPTED_S: Final = 0.5
_ENV: Final = {
    "WORKER__ENGINE": "fake",
    "WORKER__FAKE_DECODE_MS_PER_STEP": "40",
    "WORKER__SLOTS": "16",
    "WORKER__MAX_LENGTH": "4096",
    "KAFKA__REQUEST_PARTITIONS": str(_PARTITIONS),
    "ANSWERS__HISTORY_TOKENS": "0",
    # Who waits is to be seen waiting.
    "ADMISSION__ENABLED": "false",
    "PROMISE__FIRST_TOKEN_MS": "60000",
    "PROMISE__DEADLINE_MS": "60000",
    "PROMISE__MAX_DEADLINE_MS": "60000",
}


Group = Literal["round robin", "sticky", "sticky, ids"]
GROUPS: Final[tuple[Group, ...]] = ("round robin", "sticky", "sticky, ids")
_PROGRAMS: Final[dict[Group, str]] = {"round robin": "tests.bench.fleet.round_robin"}


class Event(Struct, frozen=True, kw_only=True):
    """`interrupted`: of the answers that were being written, those with a gap of half a second. `kept`: of the sessions
    whose worker is there before and after, the share that have the same one."""

    group: Group
    what: str
    longest_gap_ms: float
    interrupted: float
    longest_wait_ms: float
    kept: float
    shared_out_s: float


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """`window_s` each event is watched for, at least."""

    window_s: float
    groups: Sequence[Group]
    json_path: Path | None


async def bench_join(settings: Settings, options: JoinOptions, console: Console) -> None:
    """Raises `ServiceError`, `SettingsError`, `ConnectFailed`."""
    check_writable(options.json_path)
    settings = settings.model_copy(
        update={"kafka": settings.kafka.model_copy(update={"request_partitions": _PARTITIONS})}
    )
    events: list[Event] = []
    for group in options.groups:
        console.print(f"{group}: starting Apache Kafka, Redis, a gateway and {_WORKERS} workers")
        events += await _watch_group(group, settings, options.window_s)
    columns = (
        "shared out by",
        "what happens",
        "longest gap in an answer ms",
        "answers interrupted",
        "longest wait of a question ms",
        "sessions that keep their worker",
        "s until shared out",
    )
    print(markdown(columns, [tuple(getattr(event, name) for name in event.__struct_fields__) for event in events]))
    facts = environment(engine="fake, 40 ms a token", broker="kafka")
    write_json(options.json_path, {"events": events, "environment": facts})


async def _watch_group(group: Group, settings: Settings, window_s: float) -> list[Event]:
    with System(settings=settings, broker="kafka", env=_ENV) as system:
        await system.start_services()
        bench = _Bench(system, settings, group, window_s)
        try:
            return await bench.run()
        finally:
            await bench.stop()


@dataclass(slots=True, kw_only=True)
class Watched(Outcome):
    """`times_s` are those of its deltas."""

    times_s: list[float] = field(default_factory=list)

    def wrote(self, now_s: float) -> None:
        self.times_s.append(now_s)
        Outcome.wrote(self, now_s)


class _Asker:
    """One session, which asks again as soon as it was answered."""

    def __init__(self, number: int, tokens: int) -> None:
        self._number, self._tokens = number, tokens
        self._connection = ChatConnection(lambda _connection, _outcome: self._settled.set())
        self._settled = asyncio.Event()
        self.asked: list[Watched] = []

    async def run(self, url: str) -> None:
        session = await self._connection.open(url, SessionStart(session_id=f"join-{self._number}"))
        for times in count():
            now_s = time.monotonic()
            outcome = Watched(scheduled_s=now_s, deadline_ms=session.limits.deadline_ms)
            self.asked.append(outcome)
            self._settled.clear()
            request = ResponseCreate(
                event_id=f"join-{self._number}-{times}",
                input=question(8, self._number),
                max_output_tokens=self._tokens,
                temperature=0.0,
            )
            self._connection.ask(request, outcome, now_s)
            await self._settled.wait()
            await asyncio.sleep(_PAUSE_S)

    def close(self) -> None:
        self._connection.close()


class _Bench:
    def __init__(self, system: System, settings: Settings, group: Group, window_s: float) -> None:
        self._system, self._group, self._window_s = system, group, window_s
        self._kafka = own_kafka(settings.kafka, system.bootstrap)
        self._newest: dict[str, tuple[float, WorkerReport]] = {}
        self._reports = PartitionReader(
            self._kafka, client_id="bench", topic=self._kafka.topics.workers, partitions=[BROADCAST_PARTITION]
        )
        self._streams = [_Asker(number, _STREAM_TOKENS) for number in range(_STREAMS)]
        self._askers = [_Asker(_STREAMS + number, _QUESTION_TOKENS) for number in range(_ASKERS)]
        self._tasks: list[asyncio.Task[None]] = []
        self._workers: list[Child] = []

    async def run(self) -> list[Event]:
        self._tasks.append(asyncio.create_task(read_reports(self._reports, self._reported)))
        for number in range(_WORKERS):
            await self._start_worker(number)
        _, url = await self._system.start_gateway()
        await self._until_shared_out(_WORKERS)
        self._tasks += [asyncio.create_task(each.run(url)) for each in (*self._streams, *self._askers)]
        await asyncio.sleep(_SETTLED_S)
        return [
            await self._watch("nothing", self._nothing, _WORKERS),
            await self._watch("a worker joins", lambda: self._start_worker(_WORKERS), _WORKERS + 1),
            await self._watch("it leaves", self._leave, _WORKERS),
            await self._watch("one is killed and comes back", self._die_and_come_back, _WORKERS),
        ]

    async def stop(self) -> None:
        for each in (*self._streams, *self._askers):
            each.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._reports.stop()

    def _reported(self, worker_id: str, report: WorkerReport | None) -> None:
        if report is None:
            self._newest.pop(worker_id, None)
        else:
            self._newest[worker_id] = time.monotonic(), report

    # --- what happens

    async def _nothing(self) -> None:
        """For comparison."""

    async def _start_worker(self, number: int) -> None:
        env = {"WORKER__INSTANCE_ID": f"worker-{number}"} if self._group == "sticky, ids" else {}
        child, _ = await self._system.start_worker(module=_PROGRAMS.get(self._group, "workers"), env=env)
        self._workers.append(child)

    async def _leave(self) -> None:
        self._workers.pop().signal(signal.SIGTERM)

    async def _die_and_come_back(self) -> None:
        self._workers.pop().kill()
        self._newest.clear()
        await self._start_worker(_WORKERS - 1)

    # --- and what comes of it

    async def _watch(self, what: str, happens: Callable[[], Awaitable[None]], workers: int) -> Event:
        before, start_s = self._readers(), time.monotonic()
        await happens()
        happened_s = time.monotonic()
        await self._until_shared_out(workers)
        took_s = time.monotonic() - happened_s
        await asyncio.sleep(max(_SETTLED_S, start_s + self._window_s - time.monotonic()))
        stop_s, after = time.monotonic(), self._readers()
        stayed = [key for key in before if before[key] in set(after.values())]
        gaps_s = longest_gaps_s(_asked(self._streams), start_s, stop_s)
        return Event(
            group=self._group,
            what=what,
            longest_gap_ms=round(1_000 * max(gaps_s, default=0.0)),
            interrupted=round(sum(gap_s > _INTERRUPTED_S for gap_s in gaps_s) / max(1, len(gaps_s)), 2),
            longest_wait_ms=round(1_000 * longest_wait_s(_asked(self._askers), start_s, stop_s)),
            kept=round(sum(before[key] == after[key] for key in stayed) / len(stayed), 3),
            shared_out_s=round(took_s, 1),
        )

    def _readers(self) -> dict[int, str]:
        """By session, the worker that reads its partition."""
        by_partition = {
            number: report.worker_id for _, report in self._newest.values() for number in report.partitions["short"]
        }
        keys = [session_key("demo", f"join-{number}") for number in range(_KEYS)]
        return {number: by_partition[partition_of(key, _PARTITIONS)] for number, key in enumerate(keys)}

    async def _until_shared_out(self, workers: int) -> None:
        for _ in range(round(_LONGEST_S / _POLL_S)):
            if self._is_shared_out(workers):
                return
            await asyncio.sleep(_POLL_S)
        raise ServiceError(f"the partitions are not shared out among {workers} workers after {_LONGEST_S:g} s")

    def _is_shared_out(self, workers: int) -> bool:
        """Whether so many have a part of each topic, and all of them together the whole."""
        now_s = time.monotonic()
        reports = [report for heard_s, report in self._newest.values() if now_s - heard_s < _FRESH_S]
        held = [
            (bucket, number) for each in reports for bucket in BUCKETS for number in each.partitions.get(bucket, ())
        ]
        having = sum(bool(each.partitions) for each in reports)
        return having == workers and len(held) == len(set(held)) == len(BUCKETS) * _PARTITIONS


def longest_gaps_s(outcomes: Iterable[Watched], start_s: float, stop_s: float) -> list[float]:
    """Of each answer that was being written in the window: the longest time between two deltas, or the part of it that
    is in the window."""
    gaps_s = []
    for outcome in outcomes:
        ends_s = [*outcome.times_s, outcome.done_s or stop_s][1:]
        inside_s = [min(stop_s, end) - max(start_s, begin) for begin, end in zip(outcome.times_s, ends_s, strict=True)]
        if (longest_s := max(inside_s, default=0.0)) > 0:
            gaps_s.append(longest_s)
    return gaps_s


def longest_wait_s(outcomes: Iterable[Watched], start_s: float, stop_s: float) -> float:
    """From a question to its first text; of those that waited in the window."""
    waits_s = [
        (outcome.first_s or stop_s) - outcome.scheduled_s
        for outcome in outcomes
        if outcome.scheduled_s < stop_s and (outcome.first_s or stop_s) > start_s
    ]
    return max(waits_s, default=0.0)


def _asked(askers: Sequence[_Asker]) -> list[Watched]:
    return [outcome for asker in askers for outcome in asker.asked]
