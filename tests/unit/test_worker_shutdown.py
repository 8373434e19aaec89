"""A worker that ends writes what it has to write before it takes leave of Kafka, which may not be there."""

from dataclasses import dataclass

from shared.settings import Settings
from shared.tasks import TaskSet
from workers.__main__ import WorkerProcess
from workers.offsets import OffsetTracker


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


async def test_what_is_to_be_written_is_written_before_the_clients_of_kafka_are_closed() -> None:
    order: list[str] = []
    process = WorkerProcess.__new__(WorkerProcess)
    parts = {name: Part(name, order) for name in ("capacity", "intake", "worker", "publisher")}
    parts |= {"history": Store("history", order), "kv": Files("kv", order), "lengths": Files("lengths", order)}
    parts |= {name: Part(name, order) for name in ("requests", "cancels", "erasures", "producer", "tracer")}
    for name, part in parts.items():
        setattr(process, f"_{name}", part)
    process._settings, process._tasks, process._offsets = Settings(), TaskSet(), OffsetTracker()
    await process._shutdown()
    assert order == list(parts)
