"""Measure how far behind its topics a worker is."""

import asyncio
from typing import Final

from shared.errors import BrokerUnavailable
from shared.kafka import GroupReader
from shared.telemetry import metrics
from shared.wire.messages import Bucket
from shared.wire.topics import TopicNames

_INTERVAL_S: Final = 5.0


async def watch_lag(reader: GroupReader, topics: TopicNames) -> None:
    """Watch until cancelled. While the broker is away the last number stands."""
    named = ((topic, topics.bucket_of(topic)) for topic in reader.topics)
    buckets: dict[str, Bucket] = {topic: bucket for topic, bucket in named if bucket is not None}
    while True:
        try:
            for topic, records in (await reader.lag()).items():
                metrics.consumer_lag.labels(buckets[topic]).set(records)
        except BrokerUnavailable:
            pass
        await asyncio.sleep(_INTERVAL_S)
