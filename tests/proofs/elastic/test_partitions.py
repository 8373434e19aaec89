"""What more partitions than workers cost an idle fleet, and when a worker joins."""

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Self

import psutil

from ops.stack.kafka_broker import KafkaBroker
from shared.kafka import GroupReader, create_topics
from shared.settings.kafka import KafkaSettings
from shared.wire.topics import BUCKETS
from tests.proofs.elastic.conftest import Note
from tests.support.system import System, eventually, start_redis

IDLE_S = 10
JOINS = 4
FEW, MANY = 4, 24


async def test_what_many_partitions_cost(tmp_path: Path, note: Note) -> None:
    few, many = [await cost(number, tmp_path) for number in (FEW, MANY)]
    figure = ", ".join(
        f"{name} {few[name]:.1f} → {many[name]:.1f} {unit}"
        for name, unit in (("broker", "% CPU"), ("worker", "% CPU"), ("memory", "MiB"), ("join", "ms"), ("leave", "ms"))
    )
    cheap = (
        many["broker"] + many["worker"] - few["broker"] - few["worker"] <= 3 and many["memory"] - few["memory"] <= 100
    )
    note(f"{MANY} partitions a topic, not {FEW}", figure, "3 points of idle CPU, 100 MiB at most", holds=cheap)


async def cost(partitions: int, folder: Path) -> dict[str, float]:
    """What idle processes take, the broker's memory, and how long the group takes when a fourth worker joins."""
    with KafkaBroker() as broker:
        kafka = KafkaSettings(bootstrap_servers=broker.bootstrap)
        await create_topics(kafka, kafka.topics.all(request_partitions=partitions, reply_partitions=8))
        system = System(bootstrap=broker.bootstrap, redis=start_redis(), prefix="", folder=folder)
        try:
            services = [system.gateway(), *(system.worker() for _ in range(4))]
            await asyncio.gather(*(service.ready() for service in services))
            watched = {"broker": psutil.Process(broker.pid), "worker": psutil.Process(services[1].child.process.pid)}
            await asyncio.sleep(IDLE_S / 2)
            before = {name: sum(process.cpu_times()[:2]) for name, process in watched.items()}
            await asyncio.sleep(IDLE_S)
            idle = {
                name: (sum(process.cpu_times()[:2]) - before[name]) * 100 / IDLE_S for name, process in watched.items()
            }
        finally:
            system.stop()
        memory = watched["broker"].memory_info().rss / 2**20
        return {**idle, "memory": memory, **await moves_ms(kafka, partitions)}


async def moves_ms(kafka: KafkaSettings, partitions: int) -> dict[str, float]:
    """The median times from a fourth member's join until all have partitions, and from its leave until three do."""
    topics, num_all = [kafka.topics.requests(bucket) for bucket in BUCKETS], partitions * len(BUCKETS)
    took: dict[str, list[float]] = {"join": [], "leave": []}
    async with AsyncExitStack() as stack:
        members = [await stack.enter_async_context(_Member(kafka, topics)) for _ in range(3)]
        await eventually(lambda: _shared(members, num_all))
        for _ in range(JOINS):
            start = time.monotonic()
            async with _Member(kafka, topics) as last:
                four = [*members, last]
                await eventually(lambda four=four: _shared(four, num_all))  # type: ignore[misc]
                joined = time.monotonic()
                await asyncio.sleep(1)
                leaves = time.monotonic()
            await eventually(lambda: _shared(members, num_all))
            took["join"].append((joined - start) * 1_000)
            took["leave"].append((time.monotonic() - leaves) * 1_000)
    return {what: median(each) for what, each in took.items()}


def _shared(members: "list[_Member]", partitions: int) -> bool:
    held = [member.reader.partitions for member in members]
    return all(held) and sum(len(each or ()) for each in held) == partitions


class _Member:
    """Reads as a worker does."""

    def __init__(self, kafka: KafkaSettings, topics: list[str]) -> None:
        self.reader = GroupReader(kafka, client_id="member", topics=topics, group="members")
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.reader.start(lambda: asyncio.sleep(0))
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._reading is not None
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        await self.reader.leave()

    async def _read(self) -> None:
        while True:
            await self.reader.read(timeout_ms=20, max_records=100)
