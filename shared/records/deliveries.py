"""Count how often each record was delivered to a process that died before the record was done: pure.

A record that kills the process that works on it would kill one process after another. So its deliveries are counted,
and the count outlives the process: it stands beside the partition's committed offset, as a note in Kafka's own metadata
of the commit (docs/decisions/0025-a-record-is-delivered-four-times.md).

A first delivery is not noted by itself. A partition is noted as `held` before its first record is worked on; a reader
that finds this note later knows that the reader before it died, and takes all records that stood in the log by then for
delivered once. From the second delivery on each is noted before the record is worked on. From the third on only a few
such records are worked on at once, the last time each alone: every death narrows the suspects, and no record is given
up that was not the only one. A reader that is alive when it loses the partition leaves it free; deliveries under way
there count only if an earlier or a later reader dies of them.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

Partition = tuple[str, int]

MAX_DELIVERIES: Final = 4
"""So often a record that has ended a process is delivered, that time included: the last time alone."""
_FEW_NUMBER: Final = 3
_FEW: Final = 8
# What Kafka takes beside an offset is 4,096 bytes; a count takes 23 at most. Half of them are left for the parting.
_MOST_NOTED: Final = 160
_MOST_BEGUN: Final = 80
_VERSION: Final = "1"


@dataclass(frozen=True, slots=True)
class Count:
    """Deliveries of a record so far; `fatal`: a process has ended by one of them, or may have."""

    deliveries: int = 0
    fatal: bool = False

    @property
    def next(self) -> int:
        """The number of the next delivery: what no process has ended by begins anew."""
        return self.deliveries + 1 if self.fatal else 1


@dataclass(frozen=True, slots=True)
class Note:
    """The note beside a partition's committed offset. `held`: a reader works on it. Records that `counts` does not
    tell of were delivered once, with a fatal end, below the offset `floor`, and never from there on."""

    held: bool = False
    floor: int = 0
    counts: Mapping[int, Count] = field(default_factory=dict)

    def encode(self) -> str:
        """Return the note as text; an empty note is an empty text."""
        if self == Note():
            return ""
        counts = ",".join(
            f"{offset}:{count.deliveries if count.fatal else -count.deliveries}"
            for offset, count in sorted(self.counts.items())
        )
        return f"{_VERSION} {'held' if self.held else 'free'} {self.floor} {counts}".rstrip()

    @classmethod
    def decode(cls, text: str) -> Self:
        """Return the note in a text; an empty one where no reader of ours has written it."""
        try:
            version, held, floor, *rest = text.split()
            counts = [part.split(":") for part in rest[0].split(",")] if rest else []
            numbers = {int(offset): int(count) for offset, count in counts}
            found = cls(held == "held", int(floor), {at: Count(abs(n), fatal=n > 0) for at, n in numbers.items()})
        except ValueError:
            return cls()
        return found if version == _VERSION and found.encode() == text else cls()

    def count(self, offset: int) -> Count:
        return self.counts.get(offset) or (Count(1, fatal=True) if offset < self.floor else Count())

    def after_a_death(self, end: int) -> "Note":
        """Return what its next reader knows: whatever stood in the log was delivered. Of what it was noted for at each
        delivery the count is right; it was not of what no process had ended by yet."""
        counts = {
            offset: count if count.fatal else Count(count.deliveries + 1, fatal=True)
            for offset, count in self.counts.items()
        }
        return Note(floor=max(self.floor, end), counts=counts)


@dataclass(slots=True)
class _Tenure:
    """A partition, for as long as it is this reader's. `before` is what was known when it came, `begun` what is worked
    on, `harmless` what of it can end nobody any more, `standing` the last note that Kafka has acknowledged."""

    before: Note
    begun: set[int] = field(default_factory=set)
    harmless: set[int] = field(default_factory=set)
    standing: Note = field(default_factory=Note)
    held: bool = False

    @property
    def num_few(self) -> int:
        """Records on their third delivery that are worked on."""
        return sum(self.before.count(offset).next == _FEW_NUMBER for offset in self.begun - self.harmless)

    @property
    def num_noted(self) -> int:
        """Records that are told of one by one, or will be."""
        return len(self.before.counts.keys() | {offset for offset in self.begun if self.before.count(offset).fatal})

    def note(self, position: int, begun: Mapping[int, Count], *, held: bool) -> Note:
        floor = self.before.floor if self.before.floor > position else 0
        counts = {
            offset: count
            for offset, count in {**self.before.counts, **begun}.items()
            if offset >= position and count != (Count(1, fatal=True) if offset < floor else Count())
        }
        if len(counts) > _MOST_NOTED:
            worst = sorted(counts.items(), key=lambda item: (item[1].fatal, item[1].deliveries), reverse=True)
            counts = dict(worst[:_MOST_NOTED])
        return Note(held, floor, counts)


class Deliveries:
    """The deliveries of one reader. A record is to be begun (`begin`), and worked on once its delivery is noted
    (`is_noted`)."""

    def __init__(self) -> None:
        self._tenures: dict[Partition, _Tenure] = {}
        self._alone: tuple[Partition, int] | None = None
        """What is worked on alone, or will be once all that was begun before has ended."""

    def take_over(self, partition: Partition, note: str, end: int) -> None:
        """Take over a partition that came with this note; its log ends there by now."""
        found = Note.decode(note)
        before = found.after_a_death(end) if found.held else found
        self._tenures[partition] = _Tenure(before)

    def knows(self, partition: Partition) -> bool:
        return partition in self._tenures

    def number(self, partition: Partition, offset: int) -> int:
        """Return which delivery of the record this one is, from 1 on."""
        return self._tenures[partition].before.count(offset).next

    def begin(self, partition: Partition, offset: int) -> bool:
        """Return whether this delivery goes on from now; else it has to wait for others to end."""
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
        """Return whether there is room for one more record that has ended a process."""
        if number == _FEW_NUMBER:
            return sum(each.num_few for each in self._tenures.values()) < _FEW
        return number == 1 or offset in tenure.before.counts or tenure.num_noted < _MOST_BEGUN

    def is_noted(self, partition: Partition, offset: int) -> bool:
        """Return whether a reader that finds the partition after this one has died would count this delivery."""
        standing, number = self._tenures[partition].standing, self.number(partition, offset)
        return standing.held and (number == 1 or standing.count(offset).deliveries >= number)

    def done(self, partition: Partition, offset: int) -> None:
        """Note that this delivery has harmed nobody; what is known of earlier ones stays until the commit has passed
        it."""
        tenure = self._tenures.get(partition)
        if tenure is not None:
            self.survived(partition, offset)
            tenure.begun.discard(offset)
            tenure.harmless.discard(offset)

    def survived(self, partition: Partition, offset: int) -> None:
        """Note that what may end a process is behind a record, though it is not done: others may begin where it was
        alone."""
        if (tenure := self._tenures.get(partition)) is not None:
            tenure.harmless.add(offset)
        if self._alone == (partition, offset):
            self._alone = None

    def lose(self, partitions: Collection[Partition]) -> None:
        """Forget partitions that went to another reader."""
        for partition in partitions:
            self._tenures.pop(partition, None)
            if self._alone is not None and self._alone[0] == partition:
                self._alone = None

    # --- what is written

    def note(self, partition: Partition, position: int) -> Note:
        """Return the note to stand beside that offset while this reader works on. What no process has ended by is not
        told: of a reader that died it is taken for granted."""
        tenure = self._tenures[partition]
        counts = {offset: tenure.before.count(offset) for offset in tenure.begun}
        begun = {offset: Count(count.deliveries + 1, fatal=True) for offset, count in counts.items() if count.fatal}
        return tenure.note(position, begun, held=tenure.held)

    def parting_note(self, partition: Partition, position: int, suspects: Collection[int] = ()) -> Note:
        """Return the note to stand there when this reader goes and lives. By a delivery of one of the `suspects` it has
        to end."""
        tenure = self._tenures[partition]
        counts = {offset: tenure.before.count(offset) for offset in tenure.begun}
        begun = {
            offset: Count(count.deliveries + 1, fatal=count.fatal or offset in suspects)
            for offset, count in counts.items()
        }
        return tenure.note(position, begun, held=False)

    def stands(self, partition: Partition, note: Note) -> None:
        """Note that Kafka has acknowledged a note."""
        tenure = self._tenures.get(partition)
        if tenure is not None:
            tenure.standing = note

    def standing(self, partition: Partition) -> Note:
        return self._tenures[partition].standing
