"""Random programs of Kafka's clients, to be run by a real broker and by the world's: `run` returns what each step saw.

A step waits for the one before, so a broker has no choice in what it answers. Run as a program, with the seeds as its
arguments, it takes the world's broker and prints a line of JSON a seed.
"""

import asyncio
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError
from aiokafka.protocol.commit import OffsetCommitRequest
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.group import HeartbeatRequest, LeaveGroupRequest, SyncGroupRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

PARTITIONS: Final = 3
STEPS: Final = 25
_WAIT_MS: Final = 2_000
Seen = list[Any]


def topic_of(seed: int) -> str:
    return f"program-{seed}"


def _batch(producer: int, sequence: int, values: list[bytes], timestamp_ms: int) -> bytes:
    """Return a batch of an idempotent producer, as it goes over the wire."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, producer, 0, sequence, 1 << 20)
    for offset, value in enumerate(values):
        builder.append(offset, timestamp_ms, None, value, [])
    return bytes(builder.build())


class Program:
    """One client of each kind, and what has been done by them."""

    def __init__(self, seed: int, bootstrap: str) -> None:
        self.chance = random.Random(f"{seed}/program")
        self.topic, self.group = topic_of(seed), f"group-of-{seed}"
        self._options: dict[str, Any] = {"bootstrap_servers": bootstrap, "request_timeout_ms": 10_000}
        self._ends = [0] * PARTITIONS
        self._first_ms = int(time.time() * 1_000)  # retention leaves it alone
        self._sequences: dict[tuple[int, int], int] = {}
        self._members: list[AIOKafkaConsumer] = []

    async def run(self) -> Seen:
        self._producer = AIOKafkaProducer(**self._options, acks="all", enable_idempotence=True)
        self._reader = AIOKafkaConsumer(**self._options, auto_offset_reset="none", group_id=None)
        steps: tuple[Callable[[], Awaitable[Any]], ...] = (
            *(self.produce, self.produce, self.ends, self.since, self.read, self.repeat, self.strangers),
            *(self.join, self.leave, self.commit, self.committed),
        )
        seen: Seen = []
        await self._producer.start()
        await self._reader.start()
        try:
            for _ in range(STEPS):
                step = self.chance.choice(steps)
                seen.append([step.__name__, await step()])
        finally:
            for client in (self._producer, self._reader, *self._members):
                await client.stop()
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
        """Send a batch of another producer, some a second time, some out of their order."""
        place = self._some()
        producer = 900_000 + self.chance.randrange(2)
        key = producer, place.partition
        ours = self._sequences.get(key, 0)
        skipped = self.chance.choice((0, 0, 0, 2))
        values = [b"r"] * self.chance.randint(1, 3)
        leader = self._reader._client.cluster.leader_for_partition(place)
        seen = []
        for _ in range(2):
            batch = _batch(producer, ours + skipped if ours else 0, values, self._first_ms)
            request = ProduceRequest(None, -1, 5_000, [(self.topic, [(place.partition, batch)])])
            response = await self._reader._client.send(leader, request)
            ((_, ((_, code, offset, *_),)),) = response.topics
            seen.append((code, offset))
        if not seen[0][0]:
            self._sequences[key] = ours + len(values)
            self._ends[place.partition] += len(values)
        return seen

    async def strangers(self) -> Any:
        """Speak to the group as one that is no member."""
        client = self._reader._client
        node = (await client.send(client.get_random_node(), FindCoordinatorRequest(self.group, 0))).coordinator_id
        commit = OffsetCommitRequest(self.group, 3, "nobody", -1, [(self.topic, [(0, 1, "")])])
        codes = [(await client.send(node, commit)).topics[0][1][0][1]]
        requests = (
            HeartbeatRequest(self.group, 3, "nobody"),
            SyncGroupRequest(self.group, 3, "nobody", None, []),
            LeaveGroupRequest(self.group, "nobody"),
        )
        return codes + [(await client.send(node, request)).error_code for request in requests]

    async def join(self) -> Any:
        """Have another member, and wait until each has its share."""
        if len(self._members) < PARTITIONS:
            member = AIOKafkaConsumer(
                **self._options,
                group_id=self.group,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                heartbeat_interval_ms=200,
                session_timeout_ms=10_000,
            )
            member.subscribe([self.topic])
            self._members.append(member)
            await member.start()
        return await self._shares()

    async def leave(self) -> Any:
        if self._members:
            await self._members.pop(self.chance.randrange(len(self._members))).stop()
        return await self._shares()

    async def _shares(self) -> list[int]:
        while True:
            shares = sorted(len(member.assignment()) for member in self._members)
            if not self._members or (sum(shares) == PARTITIONS and shares[0]):
                return shares
            await asyncio.sleep(0.1)

    async def commit(self) -> Any:
        """By whoever has the partition."""
        place, offset = self._some(), self.chance.randint(0, 50)
        for member in self._members:
            if place in member.assignment():
                await member.commit({place: (offset, f"note {offset}")})
                return place.partition, offset
        return None

    async def committed(self) -> Any:
        place = self._some()
        for member in self._members:
            if place in member.assignment():
                return await member.committed(place)
        return None


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
    for seed in seeds:
        node = loop.node(f"program-{seed}")
        seen = loop.run_until_complete(loop.start(node, Program(seed, "kafka:9092").run()))
        sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    main()
