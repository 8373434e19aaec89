"""A record that ends every process working on it is delivered four times in any history; all others are served."""

from collections import Counter, deque
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.records.deliveries import MAX_DELIVERIES, CommitMetadata, Deliveries, DeliveryCount, Partition

P: Partition = ("chat.requests.short", 0)
Q: Partition = ("chat.requests.short", 1)
KAFKAS_LIMIT_BYTES = 4_096

counts = st.dictionaries(
    st.integers(0, 2**63 - 1), st.builds(DeliveryCount, st.integers(1, 9), st.booleans()), max_size=50
)


@given(st.booleans(), st.integers(0, 2**63 - 1), counts)
def test_a_note_decodes_to_what_was_encoded(held: bool, floor: int, told: dict[int, DeliveryCount]) -> None:
    note = CommitMetadata(held, floor, told)
    assert CommitMetadata.decode(note.encode()) == note


@pytest.mark.parametrize(
    "text",
    ["", "x", "1", "1 held", "1 held x", "2 held 5", "1 held 5 6", "1 held 5 6:x", "1 held 5 6:2 ", "1  held 5", "{}"],
)
def test_foreign_metadata_decodes_to_an_empty_note(text: str) -> None:
    assert CommitMetadata.decode(text) == CommitMetadata()


def test_the_encoding_of_a_note_is_stable_across_versions() -> None:
    """Notes stay in Kafka while the workers are replaced, and operators read them."""
    note = CommitMetadata(counts={7: DeliveryCount(1), 3: DeliveryCount(2, fatal=True)}, floor=5)
    assert note.encode() == "1 free 5 3:2,7:-1"
    assert CommitMetadata(held=True, floor=5).encode() == "1 held 5"


def fatal(*offsets: int, deliveries: int = 1) -> dict[int, DeliveryCount]:
    return {offset: DeliveryCount(deliveries, fatal=True) for offset in offsets}


def test_an_empty_note_takes_no_space_and_a_full_one_fits() -> None:
    assert CommitMetadata().encode() == ""
    full = CommitMetadata(True, 2**63 - 1, fatal(*(2**63 - 1 - number for number in range(160)), deliveries=99))
    assert len(full.encode()) < KAFKAS_LIMIT_BYTES


def taken_over(note: CommitMetadata, *, end: int = 10) -> Deliveries:
    deliveries = Deliveries()
    deliveries.take_over(P, note.encode(), end)
    return deliveries


def test_a_first_delivery_does_not_wait_for_its_own_note() -> None:
    deliveries = taken_over(CommitMetadata())
    assert [deliveries.knows(each) for each in (P, Q)] == [True, False]
    assert deliveries.begin(P, 7)
    assert deliveries.begin(P, 7), "it is read again while it is in progress"
    assert not deliveries.is_noted(P, 7), "the hold on the partition is not noted yet"
    deliveries.mark_acknowledged(P, deliveries.commit_metadata(P, 7))
    assert deliveries.is_noted(P, 7)
    assert deliveries.begin(P, 8)
    assert deliveries.is_noted(P, 8)
    assert deliveries.commit_metadata(P, 7).encode() == "1 held 0"


def test_records_in_the_log_of_a_dead_process_may_have_been_delivered_once() -> None:
    deliveries = taken_over(CommitMetadata(held=True), end=10)
    assert [deliveries.number(P, offset) for offset in (9, 10)] == [2, 1]
    assert deliveries.begin(P, 9)
    deliveries.mark_acknowledged(P, CommitMetadata(held=True))
    assert not deliveries.is_noted(P, 9), "its own delivery is not noted"
    deliveries.mark_acknowledged(P, deliveries.commit_metadata(P, 3))
    assert deliveries.is_noted(P, 9)
    assert deliveries.commit_metadata(P, 3).counts == fatal(9, deliveries=2)


def test_a_note_lists_records_ahead_and_leaves_out_the_default_counts() -> None:
    """The default below the floor is one delivery, with a fatal end."""
    counts = {**fatal(3, 10, 12), **fatal(2, 4, deliveries=2)}
    deliveries = taken_over(CommitMetadata(floor=10, counts=counts))
    assert deliveries.final_commit_metadata(P, 3) == CommitMetadata(
        floor=10, counts={**fatal(4, deliveries=2), **fatal(10, 12)}
    )
    assert deliveries.final_commit_metadata(P, 10) == CommitMetadata(counts=fatal(10, 12)), (
        "every record below is committed"
    )
    assert deliveries.final_commit_metadata(P, 13) == CommitMetadata()


def test_a_note_that_is_full_keeps_the_highest_counts() -> None:
    deliveries = taken_over(CommitMetadata(counts={4: DeliveryCount(5)}))
    begun = [offset for offset in range(200) if deliveries.begin(P, offset)]
    assert len(begun) == 200
    note = deliveries.final_commit_metadata(P, 0, suspects=[3])
    assert len(note.counts) == 160
    assert (note.count(3), note.count(4)) == (DeliveryCount(1, fatal=True), DeliveryCount(6))


def test_repeated_handovers_of_a_live_process_count_no_death() -> None:
    """After a death, all deliveries count."""
    note = CommitMetadata()
    for _ in range(5):
        deliveries = taken_over(note)
        assert deliveries.begin(P, 3)
        assert deliveries.number(P, 3) == 1
        note = deliveries.final_commit_metadata(P, 3)
    assert note == CommitMetadata(counts={3: DeliveryCount(5)})
    deliveries = taken_over(note)
    assert deliveries.begin(P, 3)
    assert taken_over(deliveries.commit_metadata(P, 3)).number(P, 3) == 7
    assert taken_over(deliveries.final_commit_metadata(P, 3, [3])).number(P, 3) == 7, "it hangs"


def test_a_delivery_that_continues_at_its_old_owner_counts_once_that_process_has_ended() -> None:
    """It may still end that process, although no note covers it any more."""
    deliveries = taken_over(CommitMetadata(held=True), end=10)
    assert deliveries.begin(P, 3)
    assert taken_over(deliveries.final_commit_metadata(P, 3)).number(P, 3) == 3


def test_few_records_that_ended_two_processes_run_at_a_time_next_to_others() -> None:
    """After two deaths with other causes a backlog is processed nearly as fast as before."""
    deliveries = taken_over(CommitMetadata(held=True, counts=fatal(*range(20), deliveries=2)), end=40)
    assert [deliveries.begin(P, offset) for offset in range(9)] == [True] * 8 + [False]
    assert deliveries.begin(P, 30), "one that ended at most one process"
    assert deliveries.begin(P, 50), "a record that is not suspected"
    assert deliveries.commit_metadata(P, 0).count(8).deliveries == 2, "it was never begun"
    deliveries.done(P, 3)
    deliveries.mark_harmless(P, 4)
    assert [deliveries.begin(P, offset) for offset in (8, 9, 10)] == [True, True, False]


def test_a_record_that_ended_three_processes_is_processed_alone() -> None:
    """Running records finish first, and none is started next to it; otherwise its end would be charged to them."""
    deliveries = taken_over(CommitMetadata(counts=fatal(3, 4, deliveries=3)))
    assert deliveries.begin(P, 50)
    assert not deliveries.begin(P, 3), "one is in progress"
    assert not deliveries.begin(P, 51), "it is next in order"
    assert not deliveries.begin(P, 4)
    deliveries.mark_harmless(P, 50)
    assert deliveries.begin(P, 3)
    assert [deliveries.begin(P, offset) for offset in (4, 51)] == [False, False]
    assert deliveries.commit_metadata(P, 3).count(3).deliveries == 4
    deliveries.done(P, 3)
    assert deliveries.begin(P, 51)
    deliveries.done(P, 51)
    assert deliveries.begin(P, 4)
    deliveries.lose([Q, P])  # one of them had not arrived yet
    deliveries.take_over(Q, CommitMetadata(counts=fatal(1, 2, deliveries=3)).encode(), 9)
    assert deliveries.begin(Q, 1), "a lost record blocks no other"
    deliveries.mark_harmless(Q, 1)
    assert deliveries.begin(Q, 2), "although the first is not done"


def test_no_more_repeats_run_at_a_time_than_a_note_can_list() -> None:
    deliveries = taken_over(CommitMetadata(held=True), end=500)
    begun = [offset for offset in range(500) if deliveries.begin(P, offset)]
    assert len(begun) == 80
    assert deliveries.begin(P, 500), "a first delivery needs no entry in the note"
    assert len(deliveries.commit_metadata(P, 0).encode()) < KAFKAS_LIMIT_BYTES
    deliveries.done(P, 0)
    assert deliveries.begin(P, 100)
    suspects = [offset for offset in range(500, 900) if deliveries.begin(P, offset)]
    assert len(deliveries.final_commit_metadata(P, 0, suspects).encode()) < KAFKAS_LIMIT_BYTES


# --- any order


@dataclass
class World:
    """A partition's log, its state in Kafka, and a series of processes that work it off. A process that works on a
    `poison` record dies. Some are killed, or leave alive with work in flight and finish it unseen.

    `worked` counts how often each record was processed; `unseen` how often by a process that had left, before any
    death; `charged` the deaths or moves that happened while the record was in progress or noted as such, because a note
    lags behind.
    """

    length: int
    poison: set[int]
    chance: Random
    kills: float = 0.0
    leaves: float = 0.0
    position: int = 0
    note: str = ""
    has_died: bool = False
    done: set[int] = field(default_factory=set)
    letters: set[int] = field(default_factory=set)
    worked: Counter[int] = field(default_factory=Counter)
    unseen: Counter[int] = field(default_factory=Counter)
    charged: Counter[int] = field(default_factory=Counter)

    def live(self) -> None:
        """Run one process on the partition until it dies, leaves, or finishes every record."""
        deliveries = Deliveries()
        deliveries.take_over(P, self.note, self.length)
        waiting = deque(range(self.position, self.length))
        here: list[int] = []
        ended: set[int] = set()
        while waiting or here:
            if self.chance.random() < self.kills:
                self._die(here)
                return
            if self.chance.random() < self.leaves:
                self._leave(deliveries, here, ended)
                return
            match self.chance.choice(("begin", "begin", "work", "work", "commit")):
                case "begin" if waiting:
                    if deliveries.begin(P, waiting[0]):
                        here.append(waiting.popleft())
                        last = [offset for offset in here if deliveries.number(P, offset) >= MAX_DELIVERIES]
                        assert not last or len(here) == 1, (
                            "the record that is set aside next was the only one in progress"
                        )
                    else:
                        waiting.rotate(-1)
                case "work" if here:
                    offset = self.chance.choice(here)
                    if not deliveries.is_noted(P, offset):
                        continue
                    if not self._work(offset, deliveries.number(P, offset)):
                        self._die(here)
                        return
                    here.remove(offset)
                    ended.add(offset)
                    deliveries.done(P, offset)
                case "commit":
                    self._commit(deliveries, ended)
        self._commit(deliveries, ended)

    def _work(self, offset: int, number: int) -> bool:
        """Return whether the process is alive."""
        if number > MAX_DELIVERIES:
            self.letters.add(offset)
            return True
        self.worked[offset] += 1
        if offset not in self.poison:
            self.done.add(offset)
        return offset not in self.poison

    def _die(self, here: list[int]) -> None:
        self.has_died |= CommitMetadata.decode(self.note).held  # otherwise no record had been processed
        self.charged.update({*here, *CommitMetadata.decode(self.note).counts})

    def _leave(self, deliveries: Deliveries, here: list[int], ended: set[int]) -> None:
        for offset in here:
            if deliveries.is_noted(P, offset) and deliveries.number(P, offset) <= MAX_DELIVERIES:
                self.worked[offset] += 1
                self.unseen[offset] += not self.has_died
        self.charged.update({*here, *CommitMetadata.decode(self.note).counts})
        self.position = self._advanced(ended)
        self.note = deliveries.final_commit_metadata(P, self.position).encode()

    def _advanced(self, ended: set[int]) -> int:
        return next((offset for offset in range(self.position, self.length) if offset not in ended), self.length)

    def _commit(self, deliveries: Deliveries, ended: set[int]) -> None:
        self.position = self._advanced(ended)
        note = deliveries.commit_metadata(P, self.position)
        self.note = note.encode()
        deliveries.mark_acknowledged(P, note)

    def run(self) -> None:
        for _ in range(500):
            if self.position == self.length:
                return
            self.live()
        raise AssertionError(f"the run never ends: {self}")


@given(st.integers(1, 20), st.integers(0, 2**32))
def test_a_single_poison_record_ends_four_processes_and_harms_no_other_record(length: int, seed: int) -> None:
    chance = Random(seed)
    poison = chance.randrange(length)
    world = World(length, {poison}, chance)
    world.run()
    assert world.worked[poison] == MAX_DELIVERIES
    assert world.letters == {poison}
    assert world.done == set(range(length)) - {poison}


@given(st.integers(1, 20), st.integers(0, 2**32))
def test_no_record_is_processed_more_often_than_allowed_in_any_history(length: int, seed: int) -> None:
    """No record is lost, and none is set aside that was not in progress at a death."""
    chance = Random(seed)
    poison = {chance.randrange(length) for _ in range(chance.randrange(6))}
    world = World(length, poison, chance, kills=0.02, leaves=0.02)
    world.run()
    for offset in poison:
        assert world.worked[offset] <= max(MAX_DELIVERIES, world.unseen[offset] + 1)
    assert world.done | world.letters == set(range(length))
    assert all(world.charged[offset] >= MAX_DELIVERIES - 1 for offset in world.letters - poison)


@given(st.integers(1, 20), st.integers(0, 2**32))
def test_without_a_death_no_record_is_set_aside_however_often_it_moves(length: int, seed: int) -> None:
    world = World(length, set(), Random(seed), leaves=0.2)
    world.run()
    assert (world.letters, world.done) == (set(), set(range(length)))
