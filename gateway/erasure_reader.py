"""Erasures from `chat.cancels`, as they come: what another gateway's client had erased is told by nobody.

From the topic's end: of those before, Redis knows.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from shared import metrics
from shared.codec import decode_cancel
from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import Outage, PartitionReader
from shared.messages import Erase

_RETRY_S: Final = 0.2


async def read_erasures(reader: PartitionReader, erased: Callable[[Erase], None]) -> None:
    """Connect, as long as it takes, and read until cancelled. Cancels are the workers' to heed; what is neither is
    counted and skipped."""
    await reader.start()
    outage = Outage("kafka erasures")
    while True:
        try:
            records = await reader.read()
        except BrokerUnavailable as error:
            outage.still(str(error), time.monotonic())
            await asyncio.sleep(_RETRY_S)
            continue
        for record in records:
            try:
                told = decode_cancel(record.value)
            except ProtocolError:
                metrics.records_ignored.labels("cancel").inc()
                continue
            if isinstance(told, Erase):
                erased(told)
