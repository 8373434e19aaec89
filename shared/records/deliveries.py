"""Count how often each record was delivered to a process that died before the record was done. Pure.

A record that kills its process would kill one process after another. So its deliveries are counted, and the count
outlives the process: it is stored in the metadata of the partition's committed offset
(docs/decisions/0025-a-record-is-tried-four-times.md).

First deliveries are not counted one by one. A partition is marked as `held` before its first record is processed; a
reader that later finds this mark knows that the reader before it died, and assumes one delivery for every record that
the log contained at that time. From the second delivery on, each is recorded before the record is processed. From the
third on, only a few such records are processed at the same time, and the last delivery runs alone: every death narrows
the suspects, so a record is only given up if it was the only one. A reader that is alive when it loses the partition
removes the mark; its unfinished deliveries count only if an earlier or a later reader dies of them.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

Partition = tuple[str, int]

MAX_DELIVERIES: Final = 4
"""Maximum deliveries of a record that may be fatal. During the last one no other record is processed."""
_FEW_NUMBER: Final = 3
_FEW: Final = 8
# Kafka accepts 4,096 bytes of metadata; one count takes at most 23. Half of the room is reserved for the final commit.
_MOST_NOTED: Final = 160
_MOST_BEGUN: Final = 80
_VERSION: Final = "1"


@dataclass(frozen=True, slots=True)
class DeliveryCount:
    """Deliveries of a record so far. `fatal`: a process died, or may have died, of one of them."""

    deliveries: int = 0
    fatal: bool = False

    @property
    def next(self) -> int:
        """The number of the next delivery. Counting restarts at 1 if no process died of the record."""
        return self.deliveries + 1 if self.fatal else 1


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """The metadata of a partition's committed offset.

    Attributes:
        held: a reader is working on the partition.
        floor: records below this offset that are not in `counts` had one fatal delivery; those at or above it had none.
        counts: deliveries by offset.
    """

    held: bool = False
    floor: int = 0
    counts: Mapping[int, DeliveryCount] = field(default_factory=dict)

    def encode(self) -> str:
        """Return the metadata as text; empty metadata gives an empty text."""
        if self == CommitMetadata():
            return ""
        counts = ",".join(
            f"{offset}:{count.deliveries if count.fatal else -count.deliveries}"
            for offset, count in sorted(self.counts.items())
        )
        return f"{_VERSION} {'held' if self.held else 'free'} {self.floor} {counts}".rstrip()

    @classmethod
    def decode(cls, text: str) -> Self:
        """Parse metadata; return empty metadata if the text has another format."""
        try:
            version, held, floor, *rest = text.split()
            counts = [part.split(":") for part in rest[0].split(",")] if rest else []
            numbers = {int(offset): int(count) for offset, count in counts}
            found = cls(
                held == "held", int(floor), {at: DeliveryCount(abs(n), fatal=n > 0) for at, n in numbers.items()}
            )
        except ValueError:
            return cls()
        return found if version == _VERSION and found.encode() == text else cls()

    def count(self, offset: int) -> DeliveryCount:
        return self.counts.get(offset) or (DeliveryCount(1, fatal=True) if offset < self.floor else DeliveryCount())

    def after_a_death(self, end: int) -> "CommitMetadata":
        """Return what the next reader must assume after this reader's death.

        Every record up to `end` was delivered at least once. Records with a fatal delivery were counted before each new
        one, so their count is right; the count of the others was not, so it is increased by one.
        """
        counts = {
            offset: count if count.fatal else DeliveryCount(count.deliveries + 1, fatal=True)
            for offset, count in self.counts.items()
        }
        return CommitMetadata(floor=max(self.floor, end), counts=counts)


@dataclass(slots=True)
class _Tenure:
    """A partition while this reader owns it.

    Attributes:
        before: the metadata when the partition was assigned.
        begun: offsets being processed.
        harmless: offsets of `begun` that can no longer kill the process.
        standing: the last metadata that Kafka acknowledged.
        held: whether processing has begun, so that the partition must be marked.
    """

    before: CommitMetadata
    begun: set[int] = field(default_factory=set)
    harmless: set[int] = field(default_factory=set)
    standing: CommitMetadata = field(default_factory=CommitMetadata)
    held: bool = False

    @property
    def num_few(self) -> int:
        """Number of records on their third delivery that are being processed."""
        return sum(self.before.count(offset).next == _FEW_NUMBER for offset in self.begun - self.harmless)

    @property
    def num_noted(self) -> int:
        """Number of records that have, or will have, an own entry in the metadata."""
        return len(self.before.counts.keys() | {offset for offset in self.begun if self.before.count(offset).fatal})

    def note(self, position: int, begun: Mapping[int, DeliveryCount], *, held: bool) -> CommitMetadata:
        floor = self.before.floor if self.before.floor > position else 0
        counts = {
            offset: count
            for offset, count in {**self.before.counts, **begun}.items()
            if offset >= position and count != (DeliveryCount(1, fatal=True) if offset < floor else DeliveryCount())
        }
        if len(counts) > _MOST_NOTED:
            worst = sorted(counts.items(), key=lambda item: (item[1].fatal, item[1].deliveries), reverse=True)
            counts = dict(worst[:_MOST_NOTED])
        return CommitMetadata(held, floor, counts)


class Deliveries:
    """Delivery counts of one reader. Call `begin` for a record, and process it once `is_noted` returns True."""

    def __init__(self) -> None:
        self._tenures: dict[Partition, _Tenure] = {}
        self._alone: tuple[Partition, int] | None = None
        """The record that is processed alone, or will be once all earlier ones have ended."""

    def take_over(self, partition: Partition, note: str, end: int) -> None:
        """Begin to track an assigned partition, given its commit metadata and, if that says `held`, the current end of
        its log."""
        found = CommitMetadata.decode(note)
        before = found.after_a_death(end) if found.held else found
        self._tenures[partition] = _Tenure(before)

    def knows(self, partition: Partition) -> bool:
        return partition in self._tenures

    def number(self, partition: Partition, offset: int) -> int:
        """Return the number of this delivery of the record, from 1."""
        return self._tenures[partition].before.count(offset).next

    def begin(self, partition: Partition, offset: int) -> bool:
        """Return whether the record may be delivered now; False if it must wait for others to end."""
        tenure, number = self._tenures[partition], self.number(partition, offset)
        if offset in tenure.begun:
            return True
        if self._alone not in {None, (partition, offset)}:
            return False
        if number >= MAX_DELIVERIES:
            self._alone = partition, offset
            if any(each.begun - each.harmless for each in self._tenures.values()):
                return False
        elif not self._has_room(tenure, number, offset):
            return False
        tenure.begun.add(offset)
        tenure.held = True
        return True

    def _has_room(self, tenure: _Tenure, number: int, offset: int) -> bool:
        """Return whether one more record with a fatal delivery may be processed."""
        if number == _FEW_NUMBER:
            return sum(each.num_few for each in self._tenures.values()) < _FEW
        return number == 1 or offset in tenure.before.counts or tenure.num_noted < _MOST_BEGUN

    def is_noted(self, partition: Partition, offset: int) -> bool:
        """Return whether a later reader would count this delivery if this process died now."""
        standing, number = self._tenures[partition].standing, self.number(partition, offset)
        return standing.held and (number == 1 or standing.count(offset).deliveries >= number)

    def done(self, partition: Partition, offset: int) -> None:
        """Mark a delivery as completed without harm. Earlier counts remain until the commit has passed the record."""
        tenure = self._tenures.get(partition)
        if tenure is not None:
            self.mark_harmless(partition, offset)
            tenure.begun.discard(offset)
            tenure.harmless.discard(offset)

    def mark_harmless(self, partition: Partition, offset: int) -> None:
        """Mark a record that can no longer kill the process, though it is not done: others may start if it was
        processed alone."""
        if (tenure := self._tenures.get(partition)) is not None:
            tenure.harmless.add(offset)
        if self._alone == (partition, offset):
            self._alone = None

    def lose(self, partitions: Collection[Partition]) -> None:
        """Forget partitions that were assigned to another reader."""
        for partition in partitions:
            self._tenures.pop(partition, None)
            if self._alone is not None and self._alone[0] == partition:
                self._alone = None

    # --- commit metadata

    def commit_metadata(self, partition: Partition, position: int) -> CommitMetadata:
        """Return the metadata to commit at this position while reading continues.

        Records without a fatal delivery are left out; if this process dies, the next reader assumes one delivery for
        each.
        """
        tenure = self._tenures[partition]
        counts = {offset: tenure.before.count(offset) for offset in tenure.begun}
        begun = {
            offset: DeliveryCount(count.deliveries + 1, fatal=True) for offset, count in counts.items() if count.fatal
        }
        return tenure.note(position, begun, held=tenure.held)

    def final_commit_metadata(
        self, partition: Partition, position: int, suspects: Collection[int] = ()
    ) -> CommitMetadata:
        """Return the metadata to commit when this reader gives up the partition alive.

        Args:
            partition: the partition to give up.
            position: its committed offset.
            suspects: offsets whose current delivery counts as fatal.
        """
        tenure = self._tenures[partition]
        counts = {offset: tenure.before.count(offset) for offset in tenure.begun}
        begun = {
            offset: DeliveryCount(count.deliveries + 1, fatal=count.fatal or offset in suspects)
            for offset, count in counts.items()
        }
        return tenure.note(position, begun, held=False)

    def mark_acknowledged(self, partition: Partition, note: CommitMetadata) -> None:
        """Remember the metadata that Kafka has acknowledged."""
        tenure = self._tenures.get(partition)
        if tenure is not None:
            tenure.standing = note

    def acknowledged(self, partition: Partition) -> CommitMetadata:
        return self._tenures[partition].standing
