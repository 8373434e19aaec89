"""Random programs of Kafka client requests, run by a real broker and by the world's: `run` returns each step's answers,
and what its group's members are after it.

A step waits for the one before, so the broker's answers are determined. Run as a program with seeds as arguments, it
uses the world's broker and prints a line of JSON per seed.
"""

import asyncio
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from tests.integration.support.group_program import Group

PARTITIONS: Final = 3
STEPS: Final = 25
_WAIT_MS: Final = 2_000
Seen = list[Any]
Delete = Callable[[TopicPartition, int], Awaitable[None]]


def topic_of(seed: int, attempt: int = 1) -> str:
    return f"program-{seed}-{attempt}"


def _batch(producer: int, sequence: int, values: list[bytes], timestamp_ms: int) -> bytes:
    """Return a batch of an idempotent producer in wire format."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, producer, 0, sequence, 1 << 20)
    for offset, value in enumerate(values):
        builder.append(offset, timestamp_ms, None, value, [])
    return bytes(builder.build())


class Program:
    """A producer, a reader and a group, and their state. `delete` makes a partition begin at an offset; for the others
    see `Group`.
    """

    def __init__(
        self, seed: int, topic: str, bootstrap: str, delete: Delete, *, settle_s: float, awaited: Iterable[int] = ()
    ) -> None:
        self.chance = random.Random(f"{seed}/program")
        self.topic = topic
        options = {"bootstrap_servers": bootstrap, "request_timeout_ms": 120_000}
        self._options, self._delete, self._settle_s = options, delete, settle_s
        self._ends = [0] * PARTITIONS
        self._first_ms = int(time.time() * 1_000)  # retention does not touch it
        self._sequences: dict[tuple[int, int], int] = {}
        self.group = Group(self.chance, topic, options, settle_s, awaited)

    async def run(self) -> Seen:
        self._producer = AIOKafkaProducer(**self._options, acks="all", enable_idempotence=True)
        self._reader = AIOKafkaConsumer(**self._options, auto_offset_reset="none", group_id=None)
        logs = (self.produce, self.produce, self.ends, self.since, self.read, self.repeat, self.fetch, self.write)
        groups = self.group.steps
        seen: Seen = []
        await self._producer.start()
        await self._reader.start()
        await self._reader._client.add_topic(self.topic)
        await self.group.start()
        try:
            for _ in range(STEPS):
                step = self.chance.choice(self.chance.choice(((*logs, self.trim), groups, groups)))
                seen.append([step.__name__, await step(), self.group.looks])
        finally:
            await self._producer.stop()
            await self._reader.stop()
            seen.append(["at last", await self.group.stop(), []])
        return seen

    def _some(self) -> TopicPartition:
        return TopicPartition(self.topic, self.chance.randrange(PARTITIONS))

    async def produce(self) -> Any:
        place = self._some()
        sent = []
        for _ in range(self.chance.randint(1, 4)):
            number = self._ends[place.partition]
            self._ends[place.partition] += 1
            sent.append(
                await self._producer.send_and_wait(
                    self.topic, b"%d" % number, partition=place.partition, timestamp_ms=self._first_ms + 1_000 * number
                )
            )
        return [(each.partition, each.offset, each.timestamp - self._first_ms) for each in sent]

    async def ends(self) -> Any:
        places = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        first, last = await self._reader.beginning_offsets(places), await self._reader.end_offsets(places)
        return [(place.partition, first[place], last[place]) for place in places]

    async def since(self) -> Any:
        place = self._some()
        asked_ms = self._first_ms + self.chance.randint(-500, 1_000 * self._ends[place.partition] + 500)
        found = (await self._reader.offsets_for_times({place: asked_ms}))[place]
        return None if found is None else (found.offset, found.timestamp - self._first_ms)

    async def read(self) -> Any:
        place = self._some()
        start = self.chance.randint(0, self._ends[place.partition] + 1)
        self._reader.assign([place])
        self._reader.seek(place, start)
        values: list[bytes] = []
        try:
            while start + len(values) < self._ends[place.partition]:
                found = await self._reader.getmany(place, timeout_ms=_WAIT_MS)
                values += [record.value for record in found.get(place, ())]
            if start > self._ends[place.partition]:
                await self._reader.getmany(place, timeout_ms=_WAIT_MS)
        except OffsetOutOfRangeError:
            return "out of range"
        return [value.decode() for value in values]

    async def repeat(self) -> Any:
        """Send a batch of another producer, some a second time, some out of order."""
        place = self._some()
        producer = 900_000 + self.chance.randrange(2)
        key = producer, place.partition
        ours = self._sequences.get(key, 0)
        skipped = self.chance.choice((0, 0, 0, 2))
        values = [b"r"] * self.chance.randint(1, 3)
        seen = []
        for _ in range(2):
            batch = _batch(producer, ours + skipped if ours else 0, values, self._first_ms)
            request = ProduceRequest(None, -1, 5_000, [(self.topic, [(place.partition, batch)])])
            response = await self._reader._client.send(self._leader(place), request)
            ((_, ((_, code, offset, *_),)),) = response.topics
            seen.append((code, offset))
        if not seen[0][0]:
            self._sequences[key] = ours + len(values)
            self._ends[place.partition] += len(values)
        return seen

    def _leader(self, place: TopicPartition) -> Any:
        return self._reader._client.cluster.leader_for_partition(place)

    async def fetch(self) -> Any:
        """Fetch this many bytes from any offset."""
        place, size = self._some(), self.chance.choice((1, 100, 300, 1_000_000))
        start = self.chance.randint(0, self._ends[place.partition] + 1)
        request = FetchRequest(0, 0, 1_000_000, 0, [(self.topic, [(place.partition, start, size)])])
        response = await self._reader._client.send(self._leader(place), request)
        ((_, ((_, error, high, *_, data),)),) = response.topics
        return error, high, _offsets(data)

    async def write(self) -> Any:
        """Write with few acknowledgements or with none."""
        place, acks = self._some(), self.chance.choice((0, 1))
        values = [b"w"] * self.chance.randint(1, 3)
        batch = _batch(-1, -1, values, self._first_ms)
        request = ProduceRequest(None, acks, 5_000, [(self.topic, [(place.partition, batch)])])
        response = await self._reader._client.send(self._leader(place), request)
        self._ends[place.partition] += len(values)
        await asyncio.sleep(self._settle_s)
        return response and list(response.topics[0][1][0][1:3]), await self.ends()

    async def trim(self) -> Any:
        """Delete old records."""
        place = self._some()
        offset = self.chance.randint(0, self._ends[place.partition])
        await self._delete(place, offset)
        return await self.ends()


def _offsets(data: bytes) -> list[int]:
    records, offsets = MemoryRecords(data), []
    while records.has_next():
        offsets += [record.offset for record in records.next_batch()]
    return offsets


def main() -> None:
    """Run against the world's broker."""
    from tests.world.kafka.broker import Kafka
    from tests.world.redis import Redis
    from tests.world.tokens import Issuer
    from tests.world.virtual.loop import VirtualLoop
    from tests.world.virtual.machine import install

    seeds = [int(each) for each in sys.argv[1:]]
    loop = VirtualLoop(random.Random(0))
    kafka = Kafka(loop, {topic_of(seed): PARTITIONS for seed in seeds}, {})
    install(loop, kafka, Redis(loop), Issuer(loop), lambda *_: None)

    async def delete(place: TopicPartition, offset: int) -> None:
        kafka.logs[place].trim(offset)

    for seed in seeds:
        program = Program(seed, topic_of(seed), "kafka:9092", delete, settle_s=0.05)
        seen = loop.run_until_complete(loop.start(loop.node(f"program-{seed}"), program.run()))
        sys.stdout.write(json.dumps([seen, program.group.told]) + "\n")


if __name__ == "__main__":
    main()
