"""Reports of the workers from `chat.workers`, as they come.

From the topic's end: every worker reports a few times a second, and an older report would be as fresh as its receipt.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from shared import metrics
from shared.codec import decode_report
from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import PartitionReader, Record
from shared.logs import get_logger
from shared.messages import WorkerReport

_RETRY_S: Final = 0.2

Reported = Callable[[str, WorkerReport | None], None]


async def read_reports(reader: PartitionReader, reported: Reported) -> None:
    """Connect, as long as it takes, and read until cancelled. What is not a report is counted and skipped."""
    await reader.start()
    while True:
        try:
            records = await reader.read()
        except BrokerUnavailable as error:
            get_logger().warning("unavailable", what="kafka workers", cause=str(error), action="retrying")
            await asyncio.sleep(_RETRY_S)
            continue
        for record in records:
            _tell(record, reported)


def _tell(record: Record, reported: Reported) -> None:
    if record.value is None:
        reported((record.key or b"").decode("utf-8", "replace"), None)
        return
    try:
        report = decode_report(record.value)
    except ProtocolError:
        metrics.dead_letters.labels("bad_report").inc()
        return
    reported(report.worker_id, report)
