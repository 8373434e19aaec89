"""A partition's log: batches, leaders, replication (acks=all), idempotent producers, retention."""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka.record.memory_records import MemoryRecords

# https://kafka.apache.org/documentation/#recordbatch
_HEAD: Final = struct.Struct(">qiibIhiqqqhii")
_APPEND_TIME: Final = 8  # of a batch's attributes
_KEPT_BATCHES: Final = 5  # of a producer, by which a repetition is known
_MOST_BYTES: Final = 1_048_588
TOO_LARGE, OUT_OF_ORDER = 10, 45


@dataclass(slots=True, eq=False)
class Batch:
    """Records that were produced together. `safe`: every replica has them."""

    base: int
    count: int
    data: bytes
    producer: int
    sequence: int
    timestamp_ms: int
    safe: bool = False

    @property
    def end(self) -> int:
        return self.base + self.count


@dataclass(slots=True, eq=False)
class Log:
    """`epoch` counts its leaders; `high` is the high watermark: what is before it is acknowledged, and read.
    `changed` are called, once, when a batch is safe, the leader moves or records are deleted."""

    topic: str
    number: int
    leader: int | None
    append_time: bool
    epoch: int = 0
    start: int = 0
    high: int = 0
    batches: list[Batch] = field(default_factory=list)
    producers: dict[int, list[Batch]] = field(default_factory=dict)
    changed: dict[Any, Callable[[], None]] = field(default_factory=dict)
    num_lost: int = 0

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else max(self.start, self.high)

    def append(self, data: bytes, now_ms: int) -> Batch | int:
        """Append a batch as its leader does; return the batch, an earlier one that it repeats, or an error's code."""
        _, length, _, magic, crc, attributes, last, first_ms, last_ms, producer, epoch, sequence, num = (
            _HEAD.unpack_from(data)
        )
        count = last + 1
        mine = self.producers.setdefault(producer, [])
        if len(data) > _MOST_BYTES:
            return TOO_LARGE
        if mine and producer != -1:
            for batch in mine[-_KEPT_BATCHES:]:
                if batch.sequence == sequence and batch.count == count:
                    return batch
            if sequence != mine[-1].sequence + mine[-1].count:
                return OUT_OF_ORDER
        if self.append_time:
            last_ms, attributes = now_ms, attributes | _APPEND_TIME
        base = self.end
        head = _HEAD.pack(
            base, length, 0, magic, crc, attributes, last, first_ms, last_ms, producer, epoch, sequence, num
        )
        batch = Batch(base, count, head + data[_HEAD.size :], producer, sequence, last_ms)
        self.batches.append(batch)
        mine.append(batch)
        return batch

    def replicated(self, batch: Batch, epoch: int) -> None:
        """Take in that every replica has a batch, and all before it, unless the leader has changed since."""
        if epoch == self.epoch:
            for each in reversed(self.batches):
                if each.end <= batch.end:
                    if each.safe:
                        break
                    each.safe = True
            self.high = max(self.high, batch.end)
            self.tell()

    def move(self, leader: int, keeps: Callable[[], bool]) -> None:
        """Have another broker lead: of what was not acknowledged it may have nothing."""
        self.leader = leader
        self.epoch += 1
        while self.batches and not self.batches[-1].safe:
            if keeps():
                for batch in self.batches:
                    batch.safe = True
                self.high = self.end
                break
            lost = self.batches.pop()
            self.producers[lost.producer].remove(lost)
            self.num_lost += 1
        self.tell()

    def older(self, timestamp_ms: int) -> int:
        """Return where what is older ends."""
        end = self.start
        for batch in self.batches:
            if not batch.safe or batch.timestamp_ms >= timestamp_ms:
                break
            end = batch.end
        return end

    def trim(self, offset: int) -> None:
        """Delete what is before an acknowledged offset."""
        self.start = max(self.start, offset)
        while self.batches and self.batches[0].end <= self.start:
            self.batches.pop(0)

    def compact(self) -> None:
        """Delete the batches of which each record has a later one of the same key; the last is an open segment: it
        stays, and replaces nothing."""
        newest = {record.key: record.offset for record in self.records(0, self.batches[-1].base if self.batches else 0)}
        self.batches = [
            batch
            for batch in self.batches
            if batch is self.batches[-1]
            or any(newest.get(each.key, 0) <= each.offset for each in self._records_of(batch))
        ]

    def tell(self) -> None:
        """Wake each task that waits for a change."""
        waiting, self.changed = self.changed, {}
        for call in waiting.values():
            call()

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Return the acknowledged batches from the one that holds `offset`: one at least, where there is one."""
        if offset >= self.high:
            return b""
        at = len(self.batches)
        while at > 0 and self.batches[at - 1].end > offset:
            at -= 1
        data = b""
        for batch in self.batches[at:]:
            if batch.end > self.high or (data and len(data) + len(batch.data) > max_bytes):
                break
            data += batch.data
        return data

    def since(self, timestamp_ms: int) -> Any:
        """Return the first acknowledged record that is not older, or None."""
        late = (batch for batch in self.batches if batch.timestamp_ms >= timestamp_ms and batch.end <= self.high)
        records = (record for batch in late for record in self._records_of(batch))
        return next((each for each in records if each.timestamp >= timestamp_ms and each.offset >= self.start), None)

    def records(self, start: int, end: int) -> Iterator[Any]:
        """Yield the acknowledged records of a range."""
        for batch in self.batches:
            if batch.safe and batch.end > start and batch.base < end:
                yield from (record for record in self._records_of(batch) if start <= record.offset < end)

    @staticmethod
    def _records_of(batch: Batch) -> Iterator[Any]:
        records = MemoryRecords(batch.data)
        while records.has_next():
            yield from records.next_batch()
