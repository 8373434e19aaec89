"""A record is processed after its delivery was committed as a note; a live worker clears the note when it loses the
partition.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from shared.errors import BrokerUnavailable
from shared.records import commits as module
from shared.records.commits import Commits
from shared.records.deliveries import CommitMetadata, DeliveryCount, Partition
from shared.records.offsets import OffsetTracker
from tests.support.fakes.gateways import quiet, until

P: Partition = ("chat.requests.short", 0)
Q: Partition = ("chat.requests.short", 1)
ONCE, TWICE, THRICE, FOUR_TIMES = (DeliveryCount(number, fatal=True) for number in (1, 2, 3, 4))


@dataclass
class FakeReader:
    """Kafka from a group member's view: committed offsets, their delivery notes, and the end of each log."""

    written: dict[Partition, str] = field(default_factory=dict)
    offsets: dict[Partition, int] = field(default_factory=dict)
    ends: dict[Partition, int] = field(default_factory=dict)
    ends_asked: list[Partition] = field(default_factory=list)
    commits: int = 0
    away: bool = False
    partitions: frozenset[Partition] | None = frozenset()

    async def notes(
        self, partitions: Sequence[Partition], *, needs_end: Callable[[str], bool]
    ) -> dict[Partition, tuple[str, int]]:
        await asyncio.sleep(0)
        if self.away:
            raise BrokerUnavailable("away")
        found = {each: self.written.get(each, "") for each in partitions}
        asked = {each: self.ends.get(each, 0) for each, note in found.items() if needs_end(note)}
        self.ends_asked += asked
        return {each: (note, asked.get(each, 0)) for each, note in found.items()}

    async def commit(self, offsets: Mapping[Partition, int], notes: Mapping[Partition, str]) -> bool:
        await asyncio.sleep(0)
        if self.away:
            raise BrokerUnavailable("away")
        self.commits += 1
        self.offsets.update(offsets)
        self.written.update(notes)
        return True

    def pop_lost(self) -> list[Partition]:
        return []

    def pop_passed(self) -> dict[Partition, int]:
        return {}

    def note(self, partition: Partition = P) -> CommitMetadata:
        return CommitMetadata.decode(self.written.get(partition, ""))


@dataclass
class Desk:
    reader: FakeReader = field(default_factory=FakeReader)
    offsets: OffsetTracker = field(default_factory=OffsetTracker)
    commits: Commits = field(init=False)

    def __post_init__(self) -> None:
        reader: Any = self.reader
        self.commits = Commits(reader, self.offsets)

    def begin(self, *offsets: int, partition: Partition = P) -> "list[asyncio.Task[int | None]]":
        for offset in offsets:
            self.offsets.open(partition, offset)
            self.offsets.claim(partition, offset)
        return [asyncio.create_task(self.commits.await_delivery(partition, offset)) for offset in offsets]


@pytest_asyncio.fixture
async def desk(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    monkeypatch.setattr(module, "INTERVAL_S", 0.0)
    desk = Desk()
    running = asyncio.create_task(desk.commits.run())
    yield desk
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_the_first_delivery_waits_for_the_partitions_held_note_and_later_ones_do_not(
    desk: Desk,
) -> None:
    first, *_ = desk.begin(7)
    assert await first == 1
    assert (desk.reader.offsets[P], desk.reader.note().held) == (7, True)
    commits = desk.reader.commits
    (second,) = desk.begin(8)
    await asyncio.sleep(0)
    assert second.result() == 1, "at once"
    await quiet()
    assert desk.reader.commits == commits


async def test_no_record_is_begun_while_kafka_is_away(desk: Desk) -> None:
    desk.reader.away = True
    (first,) = desk.begin(7)
    await quiet()
    assert not first.done()
    desk.reader.away = False
    assert await first == 1


async def test_deliveries_of_a_dead_worker_are_noted_before_they_are_repeated(desk: Desk) -> None:
    desk.reader.written[P], desk.reader.ends[P] = CommitMetadata(held=True).encode(), 9
    before, after = desk.begin(8, 9)
    assert (await before, await after) == (2, 1)
    assert desk.reader.note() == CommitMetadata(held=True, floor=9, counts={8: TWICE})


async def test_the_log_end_is_read_only_after_a_reader_died(desk: Desk) -> None:
    """Reading it waits behind the fetch under way, and the first record of a partition waits with it."""
    desk.reader.written[P] = CommitMetadata(held=True).encode()
    desk.reader.written[Q] = CommitMetadata(counts={7: ONCE}).encode()
    begun = [*desk.begin(8), *desk.begin(8, partition=Q)]
    assert await asyncio.gather(*begun) == [1, 1]
    assert desk.reader.ends_asked == [P]


async def test_records_that_ended_three_processes_are_begun_one_at_a_time(desk: Desk) -> None:
    desk.reader.written[P] = CommitMetadata(counts={7: THRICE, 8: THRICE}).encode()
    first, second = desk.begin(7, 8)
    assert await first == 4
    await quiet()
    assert not second.done()
    assert desk.reader.note().counts == {7: FOUR_TIMES, 8: THRICE}
    desk.offsets.done(P, 7)
    assert await second == 4
    await until(lambda: desk.reader.offsets[P] == 8)
    assert desk.reader.note().counts == {8: FOUR_TIMES}


async def test_a_live_worker_clears_the_held_note_when_it_loses_its_partitions(desk: Desk) -> None:
    desk.reader.written[P] = CommitMetadata(counts={7: ONCE}).encode()
    (begun,) = desk.begin(7)
    assert await begun == 2
    desk.reader.partitions = None
    await desk.commits.part()
    assert desk.reader.note() == CommitMetadata(counts={7: TWICE})
    (late,) = desk.begin(8)
    await quiet()
    assert not late.done(), "the new owner of the partition is unknown"
    assert not desk.reader.note().held
    desk.reader.partitions = frozenset()
    assert await late == 1
    assert desk.reader.note() == CommitMetadata(held=True, counts={7: TWICE})


async def test_a_leaving_worker_does_not_hold_a_partition_again_and_begins_no_record(desk: Desk) -> None:
    """Otherwise the next owner would count deliveries that harmed no process."""
    (begun,) = desk.begin(7, partition=Q)
    assert await begun == 1
    (late,) = desk.begin(7)
    await desk.commits.leave()
    assert await late is None
    await quiet()
    for partition in (P, Q):
        note = desk.reader.note(partition)
        assert not note.held
        assert not any(count.fatal for count in note.counts.values())


async def test_a_hanging_worker_leaves_its_suspected_records_noted(desk: Desk) -> None:
    first, second = desk.begin(7, 8)
    assert (await first, await second) == (1, 1)
    desk.reader.partitions = None  # otherwise the next round would note it as held again
    await desk.commits.part([(P, 8), (Q, 7)])
    assert desk.reader.note() == CommitMetadata(counts={7: DeliveryCount(1), 8: ONCE})


async def test_records_waiting_when_their_partition_is_lost_are_left_to_the_next_owner(desk: Desk) -> None:
    """This holds even if the partition returns, because the record is then read again."""
    desk.reader.away = True
    (waiting,) = desk.begin(7)
    await quiet()
    desk.offsets.lose([P])
    (again,) = desk.begin(7)
    desk.reader.away = False
    assert await waiting is None
    assert await again == 1


async def test_offsets_are_committed_with_the_partitions_known_note(desk: Desk) -> None:
    """A skipped record is never processed, so it neither holds the partition nor clears its note."""
    desk.reader.written[P], desk.reader.ends[P] = CommitMetadata(held=True, counts={9: TWICE}).encode(), 12
    desk.offsets.skip(P, 5)
    await until(lambda: desk.reader.offsets.get(P) == 6)
    assert desk.reader.note() == CommitMetadata(floor=12, counts={9: TWICE})


async def test_the_end_of_a_delivery_from_before_a_rebalance_delays_no_record(desk: Desk) -> None:
    """A job continues while its partition is lost and returned; when it ends, the new delivery is not noted yet."""
    desk.reader.written[P], desk.reader.ends[P] = CommitMetadata(counts={7: ONCE, 8: THRICE, 9: THRICE}).encode(), 10
    desk.reader.partitions = None
    again, alone, after = desk.begin(7, 8, 9)
    await quiet()
    desk.offsets.done(P, 7)
    desk.offsets.done(P, 8)
    assert (await again, await alone) == (None, None)
    desk.reader.partitions = frozenset()
    assert await after == 4, "the ended delivery blocks no other"


async def test_a_round_that_commits_nothing_for_the_waiting_records_is_followed_by_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This happens during a rebalance, and for a record whose note cannot be written."""
    monkeypatch.setattr(module, "INTERVAL_S", 60.0)
    desk = Desk()
    desk.reader.partitions = None
    turns = 0
    commit = desk.commits.commit

    async def counted() -> bool:
        nonlocal turns
        turns += 1
        return await commit()

    monkeypatch.setattr(desk.commits, "commit", counted)
    running = asyncio.create_task(desk.commits.run())
    (waiting,) = desk.begin(7)
    for _ in range(1_000):
        await asyncio.sleep(0)
    assert not waiting.done()
    assert turns <= 3, "it reads the partition's note, clears the hold, and then pauses"
    running.cancel()
    waiting.cancel()
    await asyncio.gather(running, waiting, return_exceptions=True)


async def test_no_pause_follows_a_round_that_served_every_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that arrives during a commit requests another commit, which notes it without a pause."""
    monkeypatch.setattr(module, "INTERVAL_S", 60.0)
    desk = Desk()
    running = asyncio.create_task(desk.commits.run())
    first, second = desk.begin(7, 8)
    assert (await first, await second) == (1, 1)
    (other,) = desk.begin(3, partition=Q)
    for _ in range(1_000):
        await asyncio.sleep(0)
    assert other.result() == 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
