"""Make the copy of a request that is moved from another lane's topic to the champion's."""

from shared.kafka import Outgoing, Record
from shared.wire.topics import TopicNames


def champions_copy(record: Record, topics: TopicNames) -> Outgoing:
    """Return a copy of the record for the champion's topic of the same bucket; partition, value, key and headers are
    the same."""
    bucket = topics.bucket_of(record.topic)
    assert bucket is not None, f"{record.topic} is no request topic"
    return Outgoing(
        topics.requests(bucket), record.value, key=record.key, partition=record.partition, headers=record.headers
    )
