"""A worker that ends writes what it has to write before it takes leave of Kafka, which may not be there."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from shared.process.tasks import TaskSet
from shared.records.deliveries import Partition
from shared.settings import Settings
from workers.__main__ import WorkerProcess


@dataclass
class Part:
    """Of the process; `order` is what was done, by whom."""

    name: str
    order: list[str]

    async def stop(self) -> None:
        self.order.append(self.name)

    async def leave(self) -> None:
        self.order.append(self.name)

    async def finish(self, limit_s: float) -> None:
        self.order.append(self.name)

    async def drain(self, limit_s: float) -> int:
        self.order.append(self.name)
        return 0


class Store(Part):
    async def close(self) -> None:
        self.order.append(self.name)


class Files(Part):
    def close(self) -> None:
        self.order.append(self.name)

    def write(self) -> None:
        self.order.append(self.name)


class Model(Part):
    """The worker, whose engine is `stuck` over `suspects`, or not."""

    stuck: str | None = None
    suspects: tuple[tuple[Partition, int], ...] = ()

    @property
    def engine_loop(self) -> SimpleNamespace:
        return SimpleNamespace(stuck=lambda: self.stuck)


class Books(Part):
    parted: tuple[object, ...] | None = None

    async def part(self, suspects: tuple[object, ...]) -> None:
        self.parted = suspects
        self.order.append(self.name)

    async def commit(self) -> None:
        self.order.append(self.name)


def process_of(order: list[str]) -> WorkerProcess:
    process = WorkerProcess.__new__(WorkerProcess)
    parts = {name: Part(name, order) for name in ("capacity", "intake", "publisher")}
    parts |= {"worker": Model("worker", order), "commits": Books("commits", order)}
    parts |= {"history": Store("history", order), "kv": Files("kv", order), "lengths": Files("lengths", order)}
    parts |= {name: Part(name, order) for name in ("requests", "cancels", "erasures", "producer")}
    for name, part in parts.items():
        setattr(process, f"_{name}", part)
    process._settings, process._tasks = Settings(), TaskSet()
    return process


NAMES = [
    *("capacity", "intake", "worker", "commits", "publisher", "history"),
    *("kv", "lengths", "requests", "cancels", "erasures", "producer"),
]


async def test_what_is_to_be_written_is_written_before_the_clients_of_kafka_are_closed() -> None:
    order: list[str] = []
    process = process_of(order)
    await process._shutdown(known=True)
    assert order == NAMES
    assert process._commits.parted == ()  # type: ignore[attr-defined]


async def test_a_fault_of_our_own_leaves_the_deliveries_counted() -> None:
    """Any record that was in flight may have brought it about."""
    order: list[str] = []
    process = process_of(order)
    await process._shutdown(known=False)
    assert order == NAMES
    assert process._commits.parted is None  # type: ignore[attr-defined]


async def test_a_worker_that_hangs_leaves_its_group_before_it_closes_anything_else() -> None:
    """It has seconds; and what stood in its slots is suspected."""
    order: list[str] = []
    process = process_of(order)
    worker: Any = process._worker
    worker.stuck, worker.suspects = "an engine step has not ended", ((("t", 0), 7),)
    await process._shutdown(known=True)
    assert order[:5] == ["capacity", "intake", "worker", "commits", "requests"]
    assert process._commits.parted == worker.suspects  # type: ignore[attr-defined]
