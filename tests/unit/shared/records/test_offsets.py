"""A committed offset never passes a record whose terminal event is not acknowledged."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from shared.records.deliveries import Partition
from shared.records.offsets import OffsetTracker

P: Partition = ("chat.requests.short", 0)
Q: Partition = ("chat.requests.short", 1)


def tracker(*offsets: int) -> OffsetTracker:
    offsets_of = OffsetTracker()
    for offset in offsets:
        offsets_of.open(P, offset)
    return offsets_of


def test_missing_offsets_in_the_log_do_not_block_a_commit() -> None:
    """Transaction markers and compaction leave gaps in the offsets."""
    offsets = tracker(5, 9)
    offsets.done(P, 5)
    assert offsets.committable() == {P: 9}, "up to the open record"
    offsets.done(P, 9)
    assert offsets.committable() == {P: 10}


def test_an_overtaken_commit_leaves_later_offsets_committable() -> None:
    offsets = tracker(0, 1)
    offsets.done(P, 0)
    ready = offsets.committable()
    offsets.done(P, 1)
    offsets.committed(ready)
    assert offsets.committable() == {P: 2}


def test_skipped_records_are_committable_up_to_the_first_open_one() -> None:
    offsets = OffsetTracker()
    for offset in range(3):
        offsets.skip(P, offset)
    assert offsets.committable() == {P: 3}
    offsets.open(P, 3)
    offsets.claim(P, 3)
    offsets.skip(P, 4)
    offsets.skip(P, 3)
    assert (offsets.committable(), offsets.num_open) == ({P: 3}, 1), "a claimed record stays open"
    offsets.done(P, 3)
    assert offsets.committable() == {P: 5}


@pytest.mark.parametrize("first", [0, 5])
def test_a_recreated_topic_restarts_its_offsets(first: int) -> None:
    """Its offsets are below the committed one and belong to other records."""
    offsets = tracker(first, first + 1)
    offsets.done(P, first)
    offsets.committed(offsets.committable())
    assert offsets.open(P, first + 1), "the last uncommitted record, read again"
    assert offsets.open(P, 0)
    assert offsets.num_open == 1
    offsets.done(P, 0)
    assert offsets.committable() == {P: 1}


def test_a_returned_partition_is_not_taken_as_a_new_log_after_a_later_commit() -> None:
    """The reader had looked up its start offset before that commit."""
    offsets = tracker(0, 1, 2)
    offsets.begin_rebalance()
    offsets.done(P, 0)
    offsets.done(P, 1)
    offsets.committed(offsets.committable())
    assert not offsets.open(P, 0)
    assert not offsets.open(P, 1)
    assert offsets.open(P, 2)
    assert offsets.positions == {P: 2}
    assert offsets.open(P, 0), "it was read again, so a lower offset now means another log"


def test_a_lost_partition_is_forgotten_and_restarts() -> None:
    offsets = tracker(3, 4)
    offsets.open(Q, 0)
    offsets.done(P, 3)
    offsets.lose([P])
    offsets.done(P, 4)
    assert (offsets.committable(), offsets.num_open) == ({}, 1)
    offsets.open(P, 3)
    offsets.done(P, 3)
    assert offsets.committable() == {P: 4}
    offsets.committed({P: 4})
    offsets.lose([P])
    offsets.open(P, 9)
    assert offsets.committable() == {}, "other members have committed that far"


class Partitions(RuleBasedStateMachine):
    """One log per partition, read forward, finished in any order, lost to another member and read again."""

    def __init__(self) -> None:
        super().__init__()
        self.tracker = OffsetTracker()
        self.next_read = {P: 0, Q: 0}
        self.log: dict[Partition, list[int]] = {P: [], Q: []}  # up to the last read offset
        self.undone: dict[Partition, set[int]] = {P: set(), Q: set()}
        self.taken: dict[Partition, set[int]] = {P: set(), Q: set()}
        self.broker = {P: 0, Q: 0}
        self.again: dict[Partition, int] = {}  # from this offset, until more than the committed part is read again

    @rule(partition=st.sampled_from([P, Q]), gap=st.integers(0, 2))
    def begin(self, partition: Partition, gap: int) -> None:
        offset = self.next_read[partition] + gap
        self.tracker.open(partition, offset)
        self.read_to(partition, offset)
        self.log[partition].append(offset)
        self.undone[partition].add(offset)
        self.next_read[partition] = offset + 1

    @rule(partition=st.sampled_from([P, Q]), count=st.integers(1, 3))
    def skip(self, partition: Partition, count: int) -> None:
        for offset in range(self.next_read[partition], self.next_read[partition] + count):
            self.tracker.skip(partition, offset)
            self.read_to(partition, offset)
            self.log[partition].append(offset)
        self.next_read[partition] += count

    @rule(data=st.data(), partition=st.sampled_from([P, Q]))
    def done(self, data: st.DataObject, partition: Partition) -> None:
        offset = data.draw(st.integers(0, self.next_read[partition] + 1))
        self.tracker.done(partition, offset)
        self.undone[partition].discard(offset)

    @rule(taken=st.booleans())
    def commit(self, taken: bool) -> None:
        ready = self.tracker.committable()
        for partition, position in ready.items():
            assert position > self.broker[partition], "a committed offset never decreases"
        if taken:
            self.tracker.committed(ready)
            self.broker.update(ready)
            assert self.tracker.committable() == {}

    @rule(partition=st.sampled_from([P, Q]))
    def lose(self, partition: Partition) -> None:
        """Lose the partition; it returns later at its committed offset."""
        self.tracker.lose([partition])
        self.undone[partition].clear()
        self.taken[partition].clear()
        self.again.pop(partition, None)
        self.next_read[partition] = self.broker[partition]
        self.log[partition] = [offset for offset in self.log[partition] if offset < self.broker[partition]]

    @rule()
    def move(self) -> None:
        """Return the partition in a rebalance: it is read from the offset committed now, though a later one may follow
        before that read.
        """
        self.tracker.begin_rebalance()
        for partition in (P, Q):
            if self.log[partition]:
                self.again.setdefault(partition, self.broker[partition])

    @rule(partition=st.sampled_from([P, Q]), back=st.integers(1, 5))
    def read_again(self, partition: Partition, back: int) -> None:
        """Read a partition again that was returned immediately: open records keep their order, finished ones stay
        finished.
        """
        undone, start = self.undone[partition], self.again.get(partition, self.broker[partition])
        for offset in [offset for offset in self.log[partition] if offset >= start][-back:]:
            self.read_to(partition, offset)
            owed = self.tracker.open(partition, offset)
            assert owed == (offset in undone and offset not in self.taken[partition])

    def read_to(self, partition: Partition, offset: int) -> None:
        if offset >= self.broker[partition]:
            self.again.pop(partition, None)

    @rule(data=st.data(), partition=st.sampled_from([P, Q]))
    def take(self, data: st.DataObject, partition: Partition) -> None:
        offset = data.draw(st.integers(0, self.next_read[partition] + 1))
        self.tracker.claim(partition, offset)
        if offset in self.undone[partition]:
            self.taken[partition].add(offset)

    @invariant()
    def no_undone_offset_is_passed(self) -> None:
        for partition, position in self.tracker.committable().items():
            assert all(offset >= position for offset in self.undone[partition])

    @invariant()
    def all_that_may_be_committed_is(self) -> None:
        assert self.tracker.num_open == sum(map(len, self.undone.values()))
        ready = {**self.broker, **self.tracker.committable()}
        for partition in (P, Q):
            if not self.undone[partition] and self.next_read[partition] > self.broker[partition]:
                assert ready[partition] == self.next_read[partition]


TestPartitions = Partitions.TestCase


def test_a_log_position_past_the_last_record_is_committed_after_the_finished_ones() -> None:
    offsets = OffsetTracker()
    offsets.pass_over({P: 2})
    assert offsets.committable() == {P: 2}
    offsets.committed({P: 2})
    offsets.open(P, 5)
    offsets.pass_over({P: 7})
    assert offsets.committable() == {P: 5}
    offsets.done(P, 5)
    assert offsets.committable() == {P: 7}
    offsets.committed({P: 7})
    assert offsets.open(P, 7)
