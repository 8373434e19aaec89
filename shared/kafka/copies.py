"""Watch whether what Kafka acknowledges survives a broker: how often each record is kept, and how many copies count."""

import asyncio
from typing import Final

from shared.errors import BrokerUnavailable
from shared.kafka.producer import Producer
from shared.settings.kafka import KafkaSettings
from shared.telemetry.logs import get_logger
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.topic_layout import weakness
from shared.wire.topics import BUCKETS

_LOOK_S: Final = 30.0


class Copies:
    """The state of the copies for `/ready`: `weak` says what is too weak and what to type, None where nothing is or
    nobody knows yet."""

    def __init__(self, producer: Producer, settings: KafkaSettings, lane: Lane = CHAMPION) -> None:
        self._producer = producer
        self._configured = settings.replication_factor
        self._topics = (*(settings.topics.requests(bucket, lane) for bucket in BUCKETS), settings.topics.replies)
        self.weak: str | None = None

    async def watch(self) -> None:
        """Look until cancelled."""
        while True:
            try:
                found = [weakness(await self._producer.copies(topic), self._configured) for topic in self._topics]
            except BrokerUnavailable:  # others say so
                await asyncio.sleep(_LOOK_S)
                continue
            why = next(filter(None, found), None)
            if why is not None and self.weak is None:
                get_logger().error("kafka_too_weak", cause=why)
            self.weak = why
            await asyncio.sleep(_LOOK_S)
