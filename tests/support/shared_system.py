"""A system that modules share: `pytestmark = pytest.mark.system(gateways=2, worker__slots=4)`.

Modules with the same mark run one after another, on the same processes. The processes are started again if one of them
has ended or does not answer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from tests.support.system import CURSOR_SECRET, Service, System, eventually, model_dir

STANDARD: Final = pytest.mark.system(
    gateways=2,
    worker__fake_decode_ms_per_step=5,
    worker__fake_mixes=True,
    worker__reply_interval_ms=0,
    worker__slots=16,
    worker__max_waiting=256,
    limits__max_input_tokens=4_000,
    kafka__tenants="demo,shop.*",
    admission__enabled=False,
    gateway__cursor_secret_file=CURSOR_SECRET,
    gateway__messages_per_minute=1_000_000,
    promise__first_token_ms=10_000,
    promise__deadline_ms=20_000,
)
"""A worker whose answers take a while, and two gateways that refuse nothing: what most modules run on."""
REAL_MODEL: Final = pytest.mark.system(
    worker__engine="onnx",
    worker__max_length=1_024,
    worker__reply_interval_ms=0,
    kv__precision="exact",  # answers are compared token for token
    model__dir=lambda _: model_dir(),
    promise__first_token_ms=30_000,
    promise__deadline_ms=60_000,
)


@dataclass(slots=True)
class Running:
    """A system with separate services; processes that a test starts in addition end with its module."""

    mark: pytest.Mark
    system: System
    workers: list[Service] = field(default_factory=list)
    gateways: list[Service] = field(default_factory=list)

    async def start(self) -> None:
        wanted = self.mark.kwargs
        self.workers = [self.system.worker(**settings) for settings in _each(wanted.get("workers", 1))]
        self.gateways = [
            self.system.gateway(**{"gateway__reply_partition": number} | settings)
            for number, settings in enumerate(_each(wanted.get("gateways", 1)))
        ]
        await asyncio.gather(*(service.ready() for service in self.services))
        for worker in self.workers:  # what is asked next may have little time
            await eventually(lambda worker=worker: worker.metric("replyline_rebalances_total"))

    @property
    def services(self) -> list[Service]:
        return [*self.workers, *self.gateways]

    async def is_well(self) -> bool:
        for service in self.services:
            service.resume()
        if not all(service.child.running for service in self.services):
            return False
        return set(await asyncio.gather(*(service.status_of("/ready/strict") for service in self.services))) == {200}

    def end_guests(self) -> None:
        guests = [service for service in self.system.services if service not in self.services]
        self.system.services = self.services
        self.system.end(guests)


def _each(wanted: int | Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    return [{}] * wanted if isinstance(wanted, int) else wanted


@dataclass(slots=True)
class SharedSystem:
    """One runs at a time."""

    make: Callable[..., Awaitable[System]]
    running: Running | None = None

    async def get(self, mark: pytest.Mark) -> Running:
        running = self.running
        if running is None or running.mark.kwargs != mark.kwargs or not await running.is_well():
            self.stop()
            settings = {name: value for name, value in mark.kwargs.items() if name not in {"workers", "gateways"}}
            running = self.running = Running(mark, await self.make(**settings))
            await running.start()
        return running

    def stop(self) -> None:
        running, self.running = self.running, None
        if running is not None:
            running.system.stop()


def in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """The tests of modules that want the same system stand together, where the first of them stood."""
    places: dict[str, int] = {}
    keys = [places.setdefault(_key(item) or item.nodeid.partition("::")[0], len(places)) for item in items]
    return [item for _, item in sorted(zip(keys, items, strict=True), key=lambda pair: pair[0])]


def _key(item: pytest.Item) -> str | None:
    module = item.getparent(pytest.Module)
    mark = None if module is None else next(module.iter_markers("system"), None)
    return None if mark is None else repr(sorted(mark.kwargs.items()))
