"""Read the workers' reports from `chat.workers`.

From the topic's end: every worker reports a few times a second, and an older report would be as fresh as its receipt.
"""

from collections.abc import Callable

from shared.errors import ProtocolError
from shared.kafka import PartitionReader, Record, read_on
from shared.telemetry import metrics
from shared.telemetry.faults import contained
from shared.wire.codec import decode_report
from shared.wire.messages import WorkerReport

UpdateWorker = Callable[[str, WorkerReport | None], None]


async def read_reports(reader: PartitionReader, update_worker: UpdateWorker) -> None:
    """Connect, as long as it takes, and read until cancelled. A record that is not a report is counted and skipped."""
    await reader.start()

    def handle(records: list[Record]) -> None:
        for record in records:
            with contained("record", offset=record.offset):
                apply_report(record, update_worker)

    await read_on("kafka workers", reader.read, handle)


def apply_report(record: Record, update_worker: UpdateWorker) -> None:
    """Call `update_worker` with a record's worker and report, None where it leaves; count what is no report."""
    if record.value is None:
        update_worker((record.key or b"").decode("utf-8", "replace"), None)
        return
    try:
        report = decode_report(record.value)
    except ProtocolError:
        metrics.records_ignored.labels("report").inc()
        return
    update_worker(report.worker_id, report)
