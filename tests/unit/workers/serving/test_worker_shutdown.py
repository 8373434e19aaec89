"""A worker that ends writes its pending records before it leaves Kafka, which may be unavailable."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from shared.process.tasks import Tasks
from shared.records.offsets import OffsetTracker
from shared.settings import Settings
from shared.telemetry import metrics
from shared.telemetry.status import Drain
from workers.connections import KafkaConnections
from workers.process import WorkerProcess
from workers.serving.loaded_versions import LoadedVersions

FIRST = ["capacity", "intake", "worker", "commits"]
REST = ["publisher", "history", "kv", "versions", "requests", "cancels", "erasures", "producer"]
OF_KAFKA = {"commits", "requests", "cancels", "erasures", "producer", "versions"}
SUSPECTS = ((("t", 0), 7),)


async def nothing() -> int:
    return 0


class Part:
    """A part of the process that records its name, and the last method called with its arguments."""

    def __init__(self, name: str, order: list[str]) -> None:
        self._name, self._order = name, order
        self.told: tuple[str, tuple[object, ...]] = ("", ())

    def __getattr__(self, what: str) -> Callable[..., Awaitable[int] | None]:
        def told(*given: object) -> Awaitable[int] | None:
            self._order.append(self._name)
            self.told = what, given
            return None if self._name == "kv" else nothing()

        return told


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("hangs", [True, False])
async def test_what_is_to_be_written_is_written_before_the_clients_of_kafka_are_closed(
    *, known: bool, hangs: bool
) -> None:
    """A hanging worker has seconds: it leaves its group before it closes anything else. After an exception in our code
    the deliveries stay counted, because any record in flight may have caused it."""
    order: list[str] = []
    process: Any = WorkerProcess.__new__(WorkerProcess)
    process._kafka = KafkaConnections.__new__(KafkaConnections)
    for name in (*FIRST, *REST):
        holder, attribute = (process._kafka, name) if name in OF_KAFKA else (process, f"_{name}")
        setattr(holder, attribute, Part(name, order))
    process._settings, process._tasks = Settings(), Tasks()
    process._versions = LoadedVersions()
    loop = SimpleNamespace(stuck=lambda: "a step has not ended" if hangs else None)
    process._versions.add(SimpleNamespace(revision="v1", engine_loop=loop, close=process._kv.close))  # type: ignore[arg-type]
    process._worker.suspects = SUSPECTS
    process._shadow = process._edge = None
    process._serve = lambda _: process._drain(known=known)
    await process.run(asyncio.Event())
    assert order == [*FIRST, *(["requests"] if hangs else []), *REST]
    assert process._kafka.commits.told == (("part", (SUSPECTS,)) if known else ("commit", ()))


@pytest.mark.parametrize("alone", [True, False])
async def test_a_worker_that_ends_leaves_before_it_has_finished_unless_it_is_alone(*, alone: bool) -> None:
    order: list[str] = []
    process: Any = WorkerProcess.__new__(WorkerProcess)
    process._kafka = KafkaConnections.__new__(KafkaConnections)
    process._kafka.commits, process._kafka.requests = Part("commits", order), Part("requests", order)
    process._kafka.requests.alone = alone
    process._capacity, process._intake, process._worker = (Part(name, order) for name in FIRST[:3])
    process._kafka.offsets, process._tasks, process._settings = OffsetTracker(), Tasks(), Settings()
    process._versions, process._worker.suspects = LoadedVersions(), ()
    left = asyncio.Event()

    async def drain(_: float) -> int:
        if not alone:
            await left.wait()
        order.append("finished")
        return 0

    async def leave() -> None:
        order.append("left")
        left.set()

    process._worker.drain, process._kafka.requests.leave = drain, leave
    async with asyncio.timeout(10):
        await process._drain(known=True)
    assert [each for each in order if each in {"left", "finished"}] == (["finished"] if alone else ["left", "finished"])
    assert process._kafka.commits.told[0] == "part", "what is still here is committed at the end"


async def test_a_worker_that_is_drained_shows_no_lag() -> None:
    """It stays up, and an alert would read for ever what waited when it left."""
    process: Any = WorkerProcess.__new__(WorkerProcess)
    process._kafka = KafkaConnections.__new__(KafkaConnections)
    for holder, attribute in ((process._kafka, "commits"), (process._kafka, "requests")):
        setattr(holder, attribute, Part(attribute, []))
    for attribute in ("_capacity", "_intake", "_worker"):
        setattr(process, attribute, Part(attribute, []))
    process._kafka.offsets, process._tasks = OffsetTracker(), Tasks()
    process._draining = Drain()
    metrics.consumer_lag.labels("short").set(7)
    await process._leave()
    await process._tasks.drain()
    assert process._draining.done
    assert not metrics.consumer_lag.collect()[0].samples  # type: ignore[attr-defined]
