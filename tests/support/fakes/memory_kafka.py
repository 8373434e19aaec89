"""A broker in memory: what is produced is read, on a loop whose time is its own."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shared.errors import ReplylineError
from shared.kafka import Outgoing, Record
from shared.records.deliveries import Partition


@dataclass(repr=False)
class Broker:
    """A key in `laggards` goes to a partition of its own, which is read once it is not `behind` any more."""

    logs: defaultdict[Partition, list[Record]] = field(default_factory=lambda: defaultdict(list))
    laggards: set[bytes] = field(default_factory=set)
    behind: set[int] = field(default_factory=lambda: {1})
    _waiting: "list[asyncio.Future[None]]" = field(default_factory=list)

    def append(self, record: Outgoing) -> tuple[int, int]:
        number = record.partition if record.partition is not None else int(record.key in self.laggards)
        log = self.logs[record.topic, number]
        log.append(Record(record.topic, number, len(log), record.key, record.value, record.headers))
        self.wake()
        return number, len(log) - 1

    def wake(self) -> None:
        """There is something to read."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            _end(each)

    async def read(self, find: Callable[[], list[Record]], timeout_ms: float) -> list[Record]:
        """What is found as soon as there is something; nothing when the time is over."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_ms / 1_000
        while not (found := find()) and loop.time() < until:
            woken: asyncio.Future[None] = loop.create_future()
            self._waiting.append(woken)
            timer = loop.call_at(until, _end, woken)
            await woken
            timer.cancel()
        return found


def _end(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)


@dataclass(repr=False)
class BrokerProducer:
    broker: Broker

    async def publish(self, record: Outgoing) -> tuple[int, int]:
        await asyncio.sleep(0)
        return self.broker.append(record)

    async def enqueue(self, record: Outgoing) -> "asyncio.Future[object]":
        acknowledged: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        acknowledged.set_result(self.broker.append(record))
        return acknowledged

    async def delivered(self, topic: str, delivery: "asyncio.Future[Any]") -> tuple[int, int]:
        del topic
        place: tuple[int, int] = await delivery
        return place

    def partition_of(self, topic: str, key: bytes) -> int:
        del topic
        return int(key in self.broker.laggards)

    def verdict(self, topic: str, error: BaseException) -> ReplylineError:
        del topic
        assert isinstance(error, ReplylineError)
        return error


@dataclass(repr=False)
class BrokerGroup:
    """The only member of its group."""

    broker: Broker
    topics: Sequence[str]
    is_moving: bool = False
    parting: Callable[[], Awaitable[None]] | None = None
    committed: dict[Partition, int] = field(default_factory=dict)
    written: dict[Partition, str] = field(default_factory=dict)
    _at: defaultdict[Partition, int] = field(default_factory=lambda: defaultdict(int))

    async def read(self, *, timeout_ms: int, max_records: int) -> list[Record]:
        del max_records
        return await self.broker.read(
            lambda: [record for place in list(self.broker.logs) for record in self._from(place)], timeout_ms
        )

    def _from(self, place: Partition) -> list[Record]:
        topic, number = place
        if topic not in self.topics or number in self.broker.behind:
            return []
        found = self.broker.logs[place][self._at[place] :]
        self._at[place] += len(found)
        return found

    def rest(self, topics: Collection[str]) -> None: ...

    def take_revoked(self) -> list[Partition]:
        return []

    def take_lost(self) -> list[Partition]:
        return []

    async def notes(self, partitions: Sequence[Partition]) -> dict[Partition, tuple[str, int]]:
        await asyncio.sleep(0)
        return {each: (self.written.get(each, ""), len(self.broker.logs[each])) for each in partitions}

    async def commit(self, offsets: Mapping[Partition, int], notes: Mapping[Partition, str]) -> bool:
        await asyncio.sleep(0)
        self.committed.update(offsets)
        self.written.update(notes)
        return True

    @property
    def lag(self) -> dict[Partition, int]:
        """Of each partition what is read and not committed."""
        behind = {place: at - self.committed.get(place, 0) for place, at in self._at.items()}
        return {place: number for place, number in behind.items() if number}


@dataclass(repr=False)
class BrokerLog:
    """A reader of one partition, from its beginning or where it is sought."""

    broker: Broker
    place: Partition
    at: int = 0

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def seek(self, offset: int) -> None:
        self.at = offset

    async def end(self) -> int:
        await asyncio.sleep(0)
        return len(self.broker.logs[self.place])

    async def next_offset(self) -> int:
        return self.at

    async def read(
        self, *, timeout_ms: int = 1_000, max_records: int = 100, keys: Container[bytes | None] | None = None
    ) -> list[Record]:
        del max_records
        found = await self.broker.read(lambda: self.broker.logs[self.place][self.at :], timeout_ms)
        self.at += len(found)
        return [record for record in found if keys is None or record.key in keys]
