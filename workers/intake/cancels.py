"""Read `chat.cancels` for requests that this worker serves: cancels, and adoptions, by which another gateway asks to
receive a running answer."""

from collections.abc import Callable, Collection
from typing import Final

from shared.errors import ProtocolError
from shared.kafka import PartitionReader, Record, read_on
from shared.process.clock import now_unix_ms, wire_unix_ms
from shared.records.deliveries import Partition
from shared.telemetry import metrics
from shared.telemetry.faults import contained
from shared.wire.codec import decode_notice
from shared.wire.deadline import RESUMABLE_MS
from shared.wire.messages import Adopt, Cancel, Notice
from shared.wire.topic_layout import cancel_partitions
from workers.request.recent_answers import RecentCancels

# clocks that differ by less lose no cancel
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
    """Read until cancelled. For a new partition, the cancels of the last two minutes are read too.

    Args:
        reader: reader of `chat.cancels`.
        partitions: this worker's request partitions; during a rebalance None, and the earlier ones are kept.
        answered: partitions of requests still being answered here, including lost ones.
        cancel: cancels an answer; returns False if it is not here.
        cancelled: stores cancels whose request has not arrived yet.
        adopt: handles an adoption.
    """

    async def read() -> list[Record]:
        if (held := partitions()) is not None:
            wanted = cancel_partitions((number for _, number in {*held, *answered()}), reader.num_partitions)
            await reader.follow(wanted, since_unix_ms=int(wire_unix_ms() - RESUMABLE_MS - _SKEW_MS))
        return await reader.read()

    def handle(records: list[Record]) -> None:
        for record in records:
            with contained("record", offset=record.offset):
                notice = _notice(record)
                if isinstance(notice, Adopt):
                    adopt(notice)
                elif notice is not None and not cancel(notice):  # its request is not here, or has not arrived yet
                    cancelled.add(notice, now_unix_ms())
        metrics.cancels_remembered.set(len(cancelled))

    await read_on("kafka cancels", read, handle)


def _notice(record: Record) -> Notice | None:
    """Return the notice in a record; a record that cannot be decoded is counted and gives None."""
    try:
        return decode_notice(record.value)
    except ProtocolError:
        metrics.records_ignored.labels("cancel").inc()
        return None
