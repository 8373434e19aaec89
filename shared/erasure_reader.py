"""Erasures from `chat.erasures`, as they come: every worker and every gateway reads all of them.

From the topic's end: of those before, Redis knows.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from shared import metrics
from shared.codec import decode_erase
from shared.errors import BrokerUnavailable, ProtocolError
from shared.faults import contained
from shared.kafka import Outage, PartitionReader
from shared.messages import Erase

_RETRY_S: Final = 0.2


async def read_erasures(reader: PartitionReader, erased: Callable[[Erase], None]) -> None:
    """Read until cancelled. What is no erasure is counted and skipped."""
    outage = Outage("kafka erasures")
    while True:
        try:
            records = await reader.read()
        except BrokerUnavailable as error:
            outage.still(str(error), time.monotonic())
            await asyncio.sleep(_RETRY_S)
            continue
        for record in records:
            with contained("record", offset=record.offset):
                try:
                    erased(decode_erase(record.value))
                except ProtocolError:
                    metrics.records_ignored.labels("erasure").inc()
