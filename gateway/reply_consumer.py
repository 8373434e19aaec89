"""Replies from this gateway's own partition of `chat.replies`, in batches as they come."""

import asyncio
import time
from collections.abc import Callable, Iterable

from shared import metrics
from shared.codec import decode_reply
from shared.errors import BrokerUnavailable, ProtocolError
from shared.faults import contained
from shared.kafka import Outage, PartitionReader, Record
from shared.messages import Reply

_RETRY_S = 0.2


async def consume_replies(reader: PartitionReader, replied: Callable[[list[Reply]], None]) -> None:
    """Read until cancelled. What is not a reply is counted and skipped."""
    outage = Outage("kafka replies")
    while True:
        try:
            records = await reader.read()
        except BrokerUnavailable as error:
            outage.still(str(error), time.monotonic())
            await asyncio.sleep(_RETRY_S)
            continue
        if records:
            replied(decode_replies(records))


def decode_replies(records: Iterable[Record]) -> list[Reply]:
    """What is not a reply is counted and left out."""
    replies: list[Reply] = []
    for record in records:
        with contained("record", offset=record.offset):
            try:
                replies.append(decode_reply(record.value))
            except ProtocolError:
                metrics.replies_dropped.labels("undecodable").inc()
    return replies
