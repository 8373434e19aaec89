"""Read logs of which every record counts once: workers' reports, erasures, replies. A record that is no such message is
counted and skipped."""

from collections.abc import Callable, Iterable

from shared.errors import ProtocolError
from shared.kafka import PartitionReader, Record, read_on
from shared.telemetry import metrics
from shared.telemetry.faults import contained
from shared.wire.codec import decode_erase, decode_reply, decode_report
from shared.wire.messages import Erase, Reply, WorkerReport

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


async def read_erasures(reader: PartitionReader, erased: Callable[[Erase, int], None]) -> None:
    """Read until cancelled; `erased` gets each with its offset. What is no erasure is counted and skipped."""

    def handle(records: list[Record]) -> None:
        for record in records:
            with contained("record", offset=record.offset):
                try:
                    erased(decode_erase(record.value), record.offset)
                except ProtocolError:
                    metrics.records_ignored.labels("erasure").inc()

    await read_on("kafka erasures", reader.read, handle)


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
