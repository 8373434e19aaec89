"""What could not be decoded or served, kept with its reason and where it came from."""

from shared import metrics
from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import Outgoing, Producer, Record
from shared.logs import get_logger
from shared.topics import DEAD_DETAIL, DEAD_ORIGIN, DEAD_REASON, TopicNames


async def dead_letter(producer: Producer, topics: TopicNames, record: Record, error: ProtocolError) -> None:
    """Put a record aside. Where even that fails it is counted and logged: the next record is served regardless."""
    metrics.dead_letters.labels(error.code).inc()
    origin = f"{record.topic}/{record.partition}/{record.offset}"
    headers = {
        **record.headers,
        DEAD_REASON: error.code.encode(),
        DEAD_DETAIL: str(error).encode()[:1_000],
        DEAD_ORIGIN: origin.encode(),
    }
    value = record.value if record.key is not None else record.value or b""  # aiokafka writes no record without both
    try:
        await producer.publish(Outgoing(topics.dead_letters, value, key=record.key, headers=headers))
    except (BrokerUnavailable, ProtocolError) as failure:
        get_logger().error("dead_letter_lost", origin=origin, reason=error.code, cause=str(failure))
    else:
        get_logger().warning("dead_letter", origin=origin, reason=error.code)
