"""A partition that is read again, for tests of its readers."""

import asyncio
from collections.abc import Callable, Container
from dataclasses import dataclass, field

from shared.errors import BrokerUnavailable
from shared.kafka import Record


@dataclass
class FakeLog:
    """A partition and the readers of it. A reader gives out one record a read; Each waits for `absent` first."""

    records: list[Record] = field(default_factory=list)
    seeks: list[int] = field(default_factory=list)
    open_readers: int = 0
    fails: int = 0
    failure: BrokerUnavailable = field(default_factory=lambda: BrokerUnavailable("away"))
    absent: asyncio.Event | None = None
    on_read: Callable[[int], None] = lambda _: None

    def reader(self, *_: object) -> "FakeReader":
        return FakeReader(self)

    async def all_closed(self) -> None:
        async with asyncio.timeout(5):
            while self.open_readers:  # noqa: ASYNC110 - a test
                await asyncio.sleep(0)


@dataclass
class FakeReader:
    log: FakeLog
    at: int = 0

    async def start(self) -> None:
        self.log.open_readers += 1
        if self.log.absent is not None:
            await self.log.absent.wait()

    def seek(self, offset: int) -> None:
        self.log.seeks.append(offset)
        self.at = offset

    async def end(self) -> int:
        return len(self.log.records)

    async def next_offset(self) -> int:
        return self.at

    async def read(
        self, *, timeout_ms: int, max_records: int, keys: Container[bytes | None] | None = None
    ) -> list[Record]:
        await asyncio.sleep(0)
        self.log.on_read(self.at)
        if self.log.fails:
            self.log.fails -= 1
            raise self.log.failure
        found = self.log.records[self.at : self.at + 1]
        self.at += len(found)
        return [record for record in found if keys is None or record.key in keys]

    async def stop(self) -> None:
        self.log.open_readers -= 1
