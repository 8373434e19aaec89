"""Read cancels and adoptions from `chat.cancels`: of the requests that this worker may have, and of no others."""

from collections.abc import Callable, Collection
from typing import Final

from shared.errors import ProtocolError
from shared.kafka import PartitionReader, Record, read_on
from shared.process.clock import now_unix_ms, wire_unix_ms
from shared.records.deliveries import Partition
from shared.telemetry import metrics
from shared.telemetry.faults import contained
from shared.wire.codec import decode_notice
from shared.wire.messages import Adopt, Cancel, Notice
from shared.wire.topic_layout import cancel_partitions
from workers.request.recent_answers import REMEMBERED_MS, RecentCancels

# Clocks that differ by less lose nothing.
_SKEW_MS: Final = 30_000.0


async def read_cancels(
    reader: PartitionReader,
    *,
    partitions: Callable[[], Collection[Partition] | None],
    answered: Callable[[], Collection[Partition]],
    cancel: Callable[[Cancel], bool],
    cancelled: RecentCancels,
    adopt: Callable[[Adopt], None],
) -> None:
    """Read until cancelled: the cancels of this worker's request `partitions`, and of those that it lost while their
    requests are still `answered` here. Of a new partition read the cancels of the last two minutes too. While
    `partitions` is None, in a rebalance, keep to the earlier ones."""

    async def read() -> list[Record]:
        if (held := partitions()) is not None:
            wanted = cancel_partitions((number for _, number in {*held, *answered()}), reader.num_partitions)
            await reader.follow(wanted, since_unix_ms=int(wire_unix_ms() - REMEMBERED_MS - _SKEW_MS))
        return await reader.read()

    def handle(records: list[Record]) -> None:
        for record in records:
            with contained("record", offset=record.offset):
                notice = _notice(record)
                if isinstance(notice, Adopt):
                    adopt(notice)
                elif notice is not None and not cancel(notice):  # its request is not here, or not here yet
                    cancelled.add(notice, now_unix_ms())
        metrics.cancels_remembered.set(len(cancelled))

    await read_on("kafka cancels", read, handle)


def _notice(record: Record) -> Notice | None:
    """Return the notice in a record; None for what is none: it is counted."""
    try:
        return decode_notice(record.value)
    except ProtocolError:
        metrics.records_ignored.labels("cancel").inc()
        return None
