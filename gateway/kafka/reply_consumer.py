"""Read replies in batches from this gateway's own partition of `chat.replies`."""

from collections.abc import Callable, Iterable

from shared.errors import ProtocolError
from shared.kafka import PartitionReader, Record, read_on
from shared.telemetry import metrics
from shared.telemetry.faults import contained
from shared.wire.codec import decode_reply
from shared.wire.messages import Reply


async def consume_replies(reader: PartitionReader, receive: Callable[[list[Reply]], None]) -> None:
    """Read until cancelled. What is not a reply is counted and skipped."""

    def handle(records: list[Record]) -> None:
        if records:
            receive(decode_replies(records))

    await read_on("kafka replies", reader.read, handle)


def decode_replies(records: Iterable[Record]) -> list[Reply]:
    """Return the replies in the records; what is not a reply is counted and left out."""
    replies: list[Reply] = []
    for record in records:
        with contained("record", offset=record.offset):
            try:
                replies.append(decode_reply(record.value))
            except ProtocolError:
                metrics.replies_dropped.labels("undecodable").inc()
    return replies
