"""Commit to Kafka how far a consumer group has processed its partitions. The metadata of each commit stores how often
the records after it have been delivered to a process that died (`shared.records.deliveries`)."""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from typing import Final

from shared.errors import BrokerUnavailable
from shared.kafka import GroupReader
from shared.records.deliveries import CommitMetadata, Partition
from shared.records.offsets import OffsetTracker
from shared.telemetry import metrics
from shared.telemetry.logs import get_logger

INTERVAL_S: Final = 0.1
_SUSPICIOUS: Final = 3

log = get_logger()


def _is_held(note: str) -> bool:
    """Return whether the partition's last reader died, so that all records of its log may have been delivered."""
    return CommitMetadata.decode(note).held


class Commits:
    """Commits offsets periodically, and immediately if a record waits for its delivery to be recorded.

    The reader is started with `part`, which commits when the group takes partitions away.
    """

    def __init__(self, reader: GroupReader, offsets: OffsetTracker) -> None:
        self._reader = reader
        self._offsets = offsets
        self._deliveries = offsets.deliveries
        self._wanted = asyncio.Event()
        self._turned = asyncio.Event()
        self._leaving = False

    async def run(self) -> None:
        """Commit until cancelled. Pause after a commit that made no progress."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL_S):
                    await self._wanted.wait()
            if not await self.commit():
                await asyncio.sleep(INTERVAL_S)
            self._wanted.clear()  # a waiter whose record is still not committed sets this again for the next commit
            self._turned.set()
            self._turned = asyncio.Event()

    async def await_delivery(self, partition: Partition, offset: int) -> int | None:
        """Wait until a record may be processed, and return the number of this delivery.

        Returns:
            None if the partition went to another reader or is about to, or if the record was completed here.
        """
        tenure = self._offsets.tenure(partition)
        while self._offsets.tenure(partition) is tenure and self._offsets.is_open(partition, offset):
            if self._leaving:
                return None
            if not self._deliveries.knows(partition):
                self._wanted.set()
            elif self._deliveries.begin(partition, offset):
                if self._deliveries.is_noted(partition, offset):
                    return self._noticed(partition, offset)
                self._wanted.set()
            await self._turned.wait()
        return None

    def _noticed(self, partition: Partition, offset: int) -> int:
        number = self._deliveries.number(partition, offset)
        if number >= _SUSPICIOUS:
            topic, at = partition
            log.warning("delivered_again", origin=f"{topic}/{at}/{offset}", deliveries=number)
        return number

    async def commit(self) -> bool:
        """Commit now, and return whether that made progress for the waiting records. A failed commit is repeated
        later."""
        known = self._num_known()
        learnt = await self._learn()
        notes = self._notes(() if self._leaving or self._reader.partitions is None else None)
        ready = self._offsets.committable() | {
            partition: position
            for partition, position in self._offsets.positions.items()
            if partition in notes and notes[partition] != self._deliveries.acknowledged(partition)
        }
        positions = {each: position for each, position in ready.items() if each in notes}
        done = await self._committed(positions, notes) and learnt
        return done and (bool(positions) or self._num_known() > known or not self._wanted.is_set())

    async def part(self, suspects: Collection[tuple[Partition, int]] = ()) -> None:
        """Commit the partitions that a rebalance takes away.

        This process is alive, so its unfinished deliveries do not count as fatal, except those of the `suspects`.
        """
        self._offsets.begin_rebalance()
        await self._learn()
        notes = self._notes(suspects)
        positions = {each: position for each, position in self._offsets.positions.items() if each in notes}
        await self._committed(positions, notes)

    async def leave(self) -> None:
        """Commit all partitions for the last time. After this call no record starts, and no commit marks a partition
        as held."""
        self._leaving = True
        await self.part()

    def _notes(self, suspects: Collection[tuple[Partition, int]] | None) -> dict[Partition, CommitMetadata]:
        """Return the metadata to commit for each partition.

        Partitions whose earlier metadata is not known yet are left out, because it would be overwritten.

        Args:
            suspects: None if this reader keeps the partitions. Otherwise it gives them up, and these deliveries count
                as fatal.
        """
        notes: dict[Partition, CommitMetadata] = {}
        for partition, position in self._offsets.positions.items():
            if not self._deliveries.knows(partition):
                continue
            if suspects is None:
                notes[partition] = self._deliveries.commit_metadata(partition, position)
            else:
                here = {offset for place, offset in suspects if place == partition}
                notes[partition] = self._deliveries.final_commit_metadata(partition, position, here)
        return notes

    async def _committed(self, positions: dict[Partition, int], notes: dict[Partition, CommitMetadata]) -> bool:
        if not positions:
            return True
        try:
            committed = await self._reader.commit(positions, {each: notes[each].encode() for each in positions})
        except BrokerUnavailable:
            committed = False
        if committed:
            self._offsets.committed(positions)
            for partition in positions:
                self._deliveries.mark_acknowledged(partition, notes[partition])
        else:
            metrics.kafka_refused.labels("commit").inc()
        return committed

    def _num_known(self) -> int:
        return sum(self._deliveries.knows(each) for each in self._offsets.positions)

    async def _learn(self) -> bool:
        """Read the commit metadata of newly assigned partitions; return whether that of all partitions is known now."""
        new = {each: self._offsets.tenure(each) for each in self._offsets.positions if not self._deliveries.knows(each)}
        if not new:
            return True
        try:
            found = await self._reader.notes(list(new), needs_end=_is_held)
        except BrokerUnavailable:
            return False
        for partition, (note, end) in found.items():
            if self._offsets.tenure(partition) is new[partition]:
                self._deliveries.take_over(partition, note, end)
        return found.keys() == new.keys()
