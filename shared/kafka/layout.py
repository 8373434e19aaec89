"""Check that the topics that are there fit together, before anything rests on it."""

from shared.errors import BrokerUnavailable
from shared.kafka.broker.connection import until_connected
from shared.kafka.producer import Producer
from shared.wire.topic_layout import misfit
from shared.wire.topics import BUCKETS, TopicNames


async def await_layout(producer: Producer, topics: TopicNames) -> None:
    """Wait until they do; the log gets one line that says what to do. From then on `producer` knows them."""

    async def look() -> None:
        names = (topics.cancels, *map(topics.requests, BUCKETS))
        why = misfit(topics, {name: await producer.num_partitions(name) for name in names})
        if why is not None:
            raise BrokerUnavailable(why)

    await until_connected("kafka topics", look)
