"""Check that the existing topics fit together, before any other part relies on them."""

import asyncio
from typing import Final

from shared.errors import BrokerUnavailable
from shared.kafka.broker.administration import create_topics, describe_topics
from shared.kafka.broker.connection import until_connected
from shared.kafka.producer import Producer
from shared.settings.kafka import KafkaSettings
from shared.telemetry.logs import get_logger
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.topic_layout import misfit, weakness
from shared.wire.topics import BUCKETS, TopicNames


async def await_layout(producer: Producer, topics: TopicNames, lane: Lane = CHAMPION) -> None:
    """Wait until the request topics and the cancel topic fit together; log one line with the remedy while they do not.

    When this returns, `producer` has their metadata.
    """

    async def look() -> None:
        requests = {topics.requests(bucket, each) for bucket in BUCKETS for each in (CHAMPION, lane)}
        why = misfit(
            topics, {name: await producer.num_partitions(name) for name in sorted({topics.cancels, *requests})}
        )
        if why is not None:
            raise BrokerUnavailable(why)

    await until_connected("kafka topics", look)


async def await_lane(settings: KafkaSettings, lane: Lane, *, kept_ms: int) -> None:
    """Create a lane's missing topics, and return when all exist.

    If creating them fails, log one line with the command to run, and retry.
    """

    async def create_missing() -> None:
        found = await describe_topics(settings)
        wanted = settings.topics.of_lane(lane, request_partitions=settings.request_partitions)
        missing = {topic: number for topic, number in wanted.items() if topic not in found}
        if not missing:
            return
        try:
            await create_topics(settings, missing, kept_ms=kept_ms)
        except BrokerUnavailable as error:
            remedy = f"replyline topics create --lane {lane}"
            raise BrokerUnavailable(f"lane {lane} has no topics: {error}; as an operator run: {remedy}") from error

    await until_connected("kafka lane", create_missing)


_LOOK_S: Final = 30.0


class Copies:
    """Watch the replication and settings of topics, for `/ready`.

    `weak` says which topic has too few replicas and what to type. It has no value if all have enough, or before it is
    known. Wrong topic settings are only logged.
    """

    def __init__(self, producer: Producer, settings: KafkaSettings, lane: Lane = CHAMPION) -> None:
        self._producer = producer
        self._configured = settings.replication_factor
        self._topics = (*(settings.topics.requests(bucket, lane) for bucket in BUCKETS), settings.topics.replies)
        names = settings.topics
        self._promised = (*self._topics, names.versions, names.erasures, names.forgotten)
        self._broken = list[str]()
        self.weak: str | None = None

    async def watch(self) -> None:
        """Check periodically, until cancelled."""
        while True:
            try:
                found = [weakness(await self._producer.copies(topic), self._configured) for topic in self._topics]
                broken = await self._producer.broken_promises(self._promised)
            except BrokerUnavailable:  # other parts log the outage
                await asyncio.sleep(_LOOK_S)
                continue
            for cause in broken:
                if cause not in self._broken:
                    get_logger().error("kafka_topic_settings", cause=cause)
            self._broken = broken
            why = next(filter(None, found), None)
            if why is not None and self.weak is None:
                get_logger().error("kafka_too_weak", cause=why)
            self.weak = why
            await asyncio.sleep(_LOOK_S)
