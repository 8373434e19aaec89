"""All records of a topic, as a test reads them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

LIMIT_S = 30.0


@dataclass(slots=True)
class Tap:
    """Reads all of a topic."""

    consumer: AIOKafkaConsumer
    records: list[ConsumerRecord] = field(default_factory=list)

    async def until(self, wanted: Callable[[ConsumerRecord], bool], *, limit_s: float = LIMIT_S) -> ConsumerRecord:
        """The first record from the topic's beginning that is wanted."""
        for record in self.records:
            if wanted(record):
                return record
        async with asyncio.timeout(limit_s):
            while True:
                record = await self.consumer.getone()
                self.records.append(record)
                if wanted(record):
                    return record

    async def to_the_end(self) -> list[ConsumerRecord]:
        """Every record that is in the topic now."""
        ends = await self.consumer.end_offsets(self.consumer.assignment())
        async with asyncio.timeout(LIMIT_S):
            while any([await self.consumer.position(TopicPartition(*tp)) < end for tp, end in ends.items()]):
                self.records.append(await self.consumer.getone())
        return self.records
