"""Erasures from `chat.erasures`, as they come: every worker and every gateway reads all of them.

A gateway reads from the topic's end: of those before, it asks Redis with each question. A worker asks nobody, and reads
those of the last hour first: a request that it finds in Kafka may have been erased before the worker started.
"""

from collections.abc import Callable

from shared.errors import ProtocolError
from shared.kafka import PartitionReader, Record, read_on
from shared.telemetry import metrics
from shared.telemetry.faults import contained
from shared.wire.codec import decode_erase
from shared.wire.messages import Erase


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
