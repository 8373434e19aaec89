"""Find the place of a moment in a log."""

from collections.abc import Collection

from aiokafka import AIOKafkaConsumer, TopicPartition


async def offsets_since(
    consumer: AIOKafkaConsumer, partitions: Collection[TopicPartition], since_unix_ms: int | None
) -> dict[TopicPartition, int]:
    """Return, by partition, the offset of the first record that was written then or later by the topic's clock, or its
    end where none was, or no time is given. librdkafka's broker knows no times: there it is the beginning. Raises
    `KafkaError`."""
    if not partitions:
        return {}
    ends: dict[TopicPartition, int] = await consumer.end_offsets(partitions)
    if since_unix_ms is None:
        return ends
    beginnings = await consumer.beginning_offsets(partitions)
    found = await consumer.offsets_for_times(dict.fromkeys(partitions, since_unix_ms))
    # None: nothing is so young, or the broker knows no times at all. Of any time it is the latter.
    of_any_time = await consumer.offsets_for_times(dict.fromkeys(partitions, 0))
    return {
        partition: found[partition].offset
        if found[partition] is not None
        else (beginnings if of_any_time[partition] is None else ends)[partition]
        for partition in partitions
    }
