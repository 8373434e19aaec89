"""Reports of the workers from `chat.workers`, as they come.

From the topic's end: every worker reports a few times a second, and an older report would be as fresh as its receipt.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from shared import metrics
from shared.codec import decode_report
from shared.errors import BrokerUnavailable, ProtocolError
from shared.faults import contained
from shared.kafka import Outage, PartitionReader, Record
from shared.messages import WorkerReport

_RETRY_S: Final = 0.2

Reported = Callable[[str, WorkerReport | None], None]


async def read_reports(reader: PartitionReader, reported: Reported) -> None:
    """Connect, as long as it takes, and read until cancelled. What is not a report is counted and skipped."""
    await reader.start()
    outage = Outage("kafka workers")
    while True:
        try:
            records = await reader.read()
        except BrokerUnavailable as error:
            outage.still(str(error), time.monotonic())
            await asyncio.sleep(_RETRY_S)
            continue
        for record in records:
            with contained("record", offset=record.offset):
                _tell(record, reported)


def _tell(record: Record, reported: Reported) -> None:
    if record.value is None:
        reported((record.key or b"").decode("utf-8", "replace"), None)
        return
    try:
        report = decode_report(record.value)
    except ProtocolError:
        metrics.records_ignored.labels("report").inc()
        return
    reported(report.worker_id, report)
