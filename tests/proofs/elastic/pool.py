"""Two gateways and as many workers as are wanted now, on a real Kafka and Redis."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from tests.support.switches import SHIPPED
from tests.support.system import CURSOR_SECRET, Service, System, eventually

SETTINGS: Final[dict[str, Any]] = {
    **SHIPPED,
    "worker__slots": 16,
    "worker__fake_decode_ms_per_step": 15,
    "kafka__request_partitions": 24,
    "gateway__cursor_secret_file": CURSOR_SECRET,
    "gateway__messages_per_minute": 1_000_000,
    "promise__first_token_ms": 10_000,
    "promise__deadline_ms": 20_000,
}


@dataclass(slots=True)
class Pool:
    """`workers` serve now; `gone` have left. `static`: each has a static id, and its replacement has the same."""

    system: System
    static: bool = False
    gateways: list[Service] = field(default_factory=list)
    workers: list[Service] = field(default_factory=list)
    gone: list[Service] = field(default_factory=list)

    async def start(self, num_workers: int) -> None:
        self.gateways = [self.system.gateway(gateway__reply_partition=number) for number in range(2)]
        await asyncio.gather(*(gateway.ready() for gateway in self.gateways))
        await self.grow(num_workers)

    @property
    def ports(self) -> list[int]:
        return [int(gateway.address.rpartition(":")[2]) for gateway in self.gateways]

    async def grow(self, more: int) -> None:
        """Start so many; return when each has partitions."""
        places = range(len(self.workers), len(self.workers) + more)
        names = [f"static-{place}" if self.static else "" for place in places]
        joining = [self.system.worker(worker__instance_id=name) for name in names]
        await asyncio.gather(*(worker.ready() for worker in joining))
        self.workers += joining
        for worker in joining:
            await eventually(partial(worker.metric, "replyline_rebalances_total"))

    async def shrink(self, leaving: Sequence[Service]) -> None:
        """Drain these and have them end; return when they have."""
        await asyncio.gather(*(eventually(partial(self._drained, worker)) for worker in leaving))
        await self.end(leaving)

    async def end(self, leaving: Sequence[Service]) -> None:
        """Send these SIGTERM; return when they have ended."""
        self.workers = [worker for worker in self.workers if worker not in leaving]
        self.gone += leaving
        statuses = await asyncio.gather(*(worker.stop() for worker in leaving))
        assert not any(statuses), statuses

    @staticmethod
    async def _drained(worker: Service) -> bool:
        page = await worker.get("/drain")
        return page is not None and b'"drained"' in page.body

    @property
    def services(self) -> list[Service]:
        """Return the gateways and all workers, those that have left too."""
        return [*self.gateways, *self.gone, *self.workers]

    def answered_by(self) -> dict[str, int]:
        """Return which worker answered each response, by the `id` of its service."""
        return {
            line["request_id"]: id(worker)
            for worker in [*self.gone, *self.workers]
            for line in worker.logged("answered")
        }
