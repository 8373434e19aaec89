"""A record is worked on once Kafka has noted its delivery; who lives takes that back when its partitions go."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from shared.errors import BrokerUnavailable
from shared.records import commits as module
from shared.records.commits import Commits
from shared.records.deliveries import Count, Note, Partition
from shared.records.offsets import OffsetTracker
from tests.support.fakes.gateways import quiet, until

P: Partition = ("chat.requests.short", 0)
Q: Partition = ("chat.requests.short", 1)
ONCE, TWICE, THRICE, FOUR_TIMES = (Count(number, fatal=True) for number in (1, 2, 3, 4))


@dataclass
class FakeReader:
    """Kafka, as a member of the group sees it: what is committed, the notes beside it, and where each log ends."""

    written: dict[Partition, str] = field(default_factory=dict)
    offsets: dict[Partition, int] = field(default_factory=dict)
    ends: dict[Partition, int] = field(default_factory=dict)
    commits: int = 0
    away: bool = False
    partitions: frozenset[Partition] | None = frozenset()

    async def notes(self, partitions: Sequence[Partition]) -> dict[Partition, tuple[str, int]]:
        await asyncio.sleep(0)
        if self.away:
            raise BrokerUnavailable("away")
        return {each: (self.written.get(each, ""), self.ends.get(each, 0)) for each in partitions}

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

    def note(self, partition: Partition = P) -> Note:
        return Note.decode(self.written.get(partition, ""))


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


async def test_a_first_delivery_waits_until_its_partition_is_noted_as_held_and_those_after_it_for_nothing(
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


async def test_where_kafka_is_away_nothing_is_begun(desk: Desk) -> None:
    desk.reader.away = True
    (first,) = desk.begin(7)
    await quiet()
    assert not first.done()
    desk.reader.away = False
    assert await first == 1


async def test_what_one_that_died_may_have_had_is_noted_before_it_is_worked_on(desk: Desk) -> None:
    desk.reader.written[P], desk.reader.ends[P] = Note(held=True).encode(), 9
    before, after = desk.begin(8, 9)
    assert (await before, await after) == (2, 1)
    assert desk.reader.note() == Note(held=True, floor=9, counts={8: TWICE})


async def test_of_those_that_ended_three_the_next_begins_when_the_one_before_is_done(desk: Desk) -> None:
    desk.reader.written[P] = Note(counts={7: THRICE, 8: THRICE}).encode()
    first, second = desk.begin(7, 8)
    assert await first == 4
    await quiet()
    assert not second.done()
    assert desk.reader.note().counts == {7: FOUR_TIMES, 8: THRICE}
    desk.offsets.done(P, 7)
    assert await second == 4
    await until(lambda: desk.reader.offsets[P] == 8)
    assert desk.reader.note().counts == {8: FOUR_TIMES}


async def test_who_lives_when_its_partitions_go_leaves_them_free(desk: Desk) -> None:
    desk.reader.written[P] = Note(counts={7: ONCE}).encode()
    (begun,) = desk.begin(7)
    assert await begun == 2
    desk.reader.partitions = None
    await desk.commits.part()
    assert desk.reader.note() == Note(counts={7: TWICE})
    (late,) = desk.begin(8)
    await quiet()
    assert not late.done(), "whose the partition is now nobody knows"
    assert not desk.reader.note().held
    desk.reader.partitions = frozenset()
    assert await late == 1
    assert desk.reader.note() == Note(held=True, counts={7: TWICE})


async def test_who_leaves_holds_no_partition_again_and_begins_nothing(desk: Desk) -> None:
    """Whoever has the partition next would count deliveries that have harmed nobody."""
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


async def test_who_hangs_leaves_its_suspects_noted(desk: Desk) -> None:
    first, second = desk.begin(7, 8)
    assert (await first, await second) == (1, 1)
    desk.reader.partitions = None  # else the next turn would note it as held again
    await desk.commits.part([(P, 8), (Q, 7)])
    assert desk.reader.note() == Note(counts={7: Count(1), 8: ONCE})


async def test_what_waits_when_its_partition_goes_is_left_to_another(desk: Desk) -> None:
    """Also where it comes back: the record is read again."""
    desk.reader.away = True
    (waiting,) = desk.begin(7)
    await quiet()
    desk.offsets.lose([P])
    (again,) = desk.begin(7)
    desk.reader.away = False
    assert await waiting is None
    assert await again == 1


async def test_offsets_are_committed_with_the_note_that_is_known_of_them(desk: Desk) -> None:
    """What is passed over is worked on by nobody: it holds nothing, and forgets nothing."""
    desk.reader.written[P], desk.reader.ends[P] = Note(held=True, counts={9: TWICE}).encode(), 12
    desk.offsets.skip(P, 5)
    await until(lambda: desk.reader.offsets.get(P) == 6)
    assert desk.reader.note() == Note(floor=12, counts={9: TWICE})


async def test_what_an_earlier_tenure_ends_is_waited_for_by_nobody(desk: Desk) -> None:
    """A job goes on while its partition goes and comes back; by its end the new delivery is not noted yet."""
    desk.reader.written[P], desk.reader.ends[P] = Note(counts={7: ONCE, 8: THRICE, 9: THRICE}).encode(), 10
    desk.reader.partitions = None
    again, alone, after = desk.begin(7, 8, 9)
    await quiet()
    desk.offsets.done(P, 7)
    desk.offsets.done(P, 8)
    assert (await again, await alone) == (None, None)
    desk.reader.partitions = frozenset()
    assert await after == 4, "the one that is over keeps nobody waiting"


async def test_a_turn_that_commits_nothing_of_what_waits_is_followed_by_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a rebalance goes on, and for a record that no note can be written of."""
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
    assert turns <= 3, "it learns what is noted of the partition, leaves it free, and then rests"
    running.cancel()
    waiting.cancel()
    await asyncio.gather(running, waiting, return_exceptions=True)


async def test_a_turn_after_one_that_served_all_is_not_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that comes while a commit is under way asks for another; it is noted by that one, and nobody rests."""
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
