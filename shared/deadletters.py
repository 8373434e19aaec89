"""What could not be decoded or served, kept with its reason and where it came from.

A dead letter is the record as it came: its key, its bytes, its headers, and beside them `dead-letter-reason` (a code),
`dead-letter-detail` (one line) and `dead-letter-origin` (`topic/partition/offset`). One that is too large to be kept
with those, or that aiokafka could not read, stands without its value and its own headers, and `dead-letter-left-out`
says so: it is to be found at its origin for as long as that topic keeps it.
"""

from typing import Final

from shared import metrics
from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import Outgoing, Producer, Record
from shared.logs import get_logger
from shared.topics import DEAD_DETAIL, DEAD_LEFT_OUT, DEAD_ORIGIN, DEAD_REASON, TopicNames

_DETAIL_CHARS: Final = 500
_KEY_BYTES: Final = 1_024


async def dead_letter(producer: Producer, topics: TopicNames, record: Record, error: ProtocolError) -> None:
    """Put a record aside. Where even that fails it is counted and logged: the next record is served regardless."""
    metrics.dead_letters.labels(error.code).inc()
    origin = f"{record.topic}/{record.partition}/{record.offset}"
    try:
        try:
            await producer.publish(letter_of(topics, record, error))
        except ProtocolError:
            await producer.publish(letter_of(topics, record, error, whole=False))
    except (BrokerUnavailable, ProtocolError) as failure:
        get_logger().error("dead_letter_lost", origin=origin, reason=error.code, cause=str(failure))
    else:
        get_logger().warning("dead_letter", origin=origin, reason=error.code)


def own_fault(error: Exception) -> ProtocolError:
    """What a dead letter says where the fault is ours: the error's kind alone, for its text may quote the record."""
    return ProtocolError("internal", f"{type(error).__name__}, a fault of Replyline's own; the log has it")


def letter_of(topics: TopicNames, record: Record, error: ProtocolError, *, whole: bool = True) -> Outgoing:
    """The record as a dead letter; not `whole`: without what may be too large."""
    told = {
        DEAD_REASON: error.code.encode(),
        DEAD_DETAIL: str(error)[:_DETAIL_CHARS].encode(errors="backslashreplace"),
        DEAD_ORIGIN: f"{record.topic}/{record.partition}/{record.offset}".encode(),
    }
    if record.unreadable:
        return Outgoing(topics.dead_letters, b"", headers={**told, DEAD_LEFT_OUT: b"unreadable"})
    value = record.value if record.key is not None else record.value or b""  # aiokafka writes no record without both
    if whole:
        own = {name: header for name, header in record.headers.items() if name != DEAD_LEFT_OUT}
        return Outgoing(topics.dead_letters, value, key=record.key, headers=own | told)
    key = record.key if record.key is None or len(record.key) <= _KEY_BYTES else None
    size = f"{len(record.value or b'')} bytes".encode()
    return Outgoing(topics.dead_letters, b"", key=key, headers={**told, DEAD_LEFT_OUT: size})
