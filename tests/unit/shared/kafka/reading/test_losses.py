"""A partition that a rebalance returns to its member is lost only if another member may have owned it in between; the
offsets of a lost partition are not committed.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import CommitFailedError, KafkaError, UnknownError

from shared.errors import BrokerUnavailable
from shared.kafka import GroupReader
from shared.kafka.reading import group_reader
from shared.kafka.reading.losses import Losses, Membership
from shared.kafka.reading.unreadable import FetchPositions
from shared.settings.kafka import KafkaSettings

P, Q, R = (TopicPartition("t", number) for number in range(3))


@dataclass
class Group:
    """A consumer group as aiokafka reports it."""

    member: Membership | None = None
    losses: Losses = field(init=False)

    def __post_init__(self) -> None:
        self.losses = Losses(FetchPositions(), lambda: self.member)

    def rebalance(self, generation: int, *assigned: TopicPartition, member_id: str = "m") -> None:
        self.member = Membership(member_id, generation)
        self.losses.on_partitions_assigned(set(assigned))

    def pop_lost(self) -> list[tuple[str, int]]:
        lost, self.losses.lost = self.losses.lost, []
        return sorted(lost)


def holding(*partitions: TopicPartition) -> Group:
    group = Group()
    group.losses.on_partitions_revoked(set())
    group.rebalance(1, *partitions)
    return group


def names(partitions: Iterable[TopicPartition]) -> list[tuple[str, int]]:
    return [(partition.topic, partition.partition) for partition in partitions]


def test_only_partitions_that_are_not_returned_are_lost() -> None:
    group = holding(P, Q)
    group.losses.on_partitions_revoked({P, Q})
    group.rebalance(2, Q, R)
    assert group.pop_lost() == names([P])
    assert sorted(group.losses.revoked) == names([P, Q])


def test_no_partition_is_lost_before_the_rebalance_ends() -> None:
    """A read that started before the rebalance returns during it."""
    group = holding(P, Q)
    group.losses.on_partitions_revoked({P, Q})
    assert group.pop_lost() == []
    group.rebalance(2, P)
    assert group.pop_lost() == names([Q])


def test_a_lost_partition_stays_lost_when_the_next_rebalance_returns_it() -> None:
    """`pop_lost` was not called in between, and another member owned the partition."""
    group = holding(P)
    group.losses.on_partitions_revoked({P})
    group.rebalance(2)
    group.losses.on_partitions_revoked(set())
    group.rebalance(3, P)
    assert group.pop_lost() == names([P])


def test_a_member_whose_session_expired_has_lost_every_partition_it_is_reassigned() -> None:
    """It rejoins with a new member id."""
    group = holding(P, Q)
    group.member = Membership("", -1)
    assert group.member.dropped
    group.losses.on_partitions_revoked({P, Q})
    group.rebalance(3, P, Q, member_id="n")
    assert group.pop_lost() == names([P, Q])
    group.losses.on_partitions_revoked({P, Q})
    group.rebalance(4, P, Q, member_id="n")
    assert group.pop_lost() == []


def test_a_member_that_missed_an_assignment_has_lost_the_partitions_it_is_reassigned() -> None:
    group = holding(P)
    group.losses.on_partitions_revoked({P})
    group.rebalance(3, P)
    assert group.pop_lost() == names([P])


@dataclass
class FakeConsumer:
    """aiokafka's consumer in a group whose other members come and go."""

    held: set[TopicPartition] = field(default_factory=set)
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    fails: KafkaError | None = None
    _coordinator: Any = field(default_factory=lambda: SimpleNamespace(member_id="", generation=-1))
    _subscription: Any = field(default_factory=lambda: SimpleNamespace(subscription=None))
    _client: Any = None

    def __post_init__(self) -> None:
        self.answers.set()

    def assignment(self) -> set[TopicPartition]:
        return self.held

    async def commit(self, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """Commit as the current member, like aiokafka does."""
        await self.answers.wait()
        if self.fails is not None:
            raise self.fails
        self.committed.update({partition: offset for partition, (offset, _) in offsets.items()})

    async def getmany(self, **_: object) -> dict[TopicPartition, list[Any]]:
        return {}


@dataclass
class Reading:
    """A group member that reads and commits."""

    consumer: FakeConsumer = field(default_factory=FakeConsumer)
    reader: GroupReader = field(init=False)

    def __post_init__(self) -> None:
        settings = KafkaSettings(request_timeout_ms=100)
        self.reader = GroupReader(settings, client_id="test", topics=["t"], group="g")
        self.reader._consumer = self.consumer

    def join(self, generation: int, *assigned: TopicPartition, member_id: str = "m") -> None:
        """Set the membership that the broker returned; the assignment callback runs later."""
        self.consumer._coordinator = SimpleNamespace(member_id=member_id, generation=generation)
        self.consumer.held = set(assigned)

    def rebalance(self, generation: int, *assigned: TopicPartition, member_id: str = "m") -> None:
        self.reader._losses.on_partitions_revoked(set(self.consumer.held))
        self.join(generation, *assigned, member_id=member_id)
        self.reader._losses.on_partitions_assigned(set(assigned))

    async def commit(self, *partitions: TopicPartition) -> bool:
        return await self.reader.commit(dict.fromkeys(names(partitions), 5))


async def test_a_member_commits_only_after_its_first_assignment() -> None:
    reading = Reading()
    assert not await reading.commit(P)
    reading.join(1, P, Q)
    assert not await reading.commit(P), "the assignment callback has not run yet"
    reading.reader._losses.on_partitions_assigned({P, Q})
    assert await reading.commit(P)
    assert reading.consumer.committed == {P: 5}


async def test_a_member_commits_the_partitions_it_keeps_through_a_rebalance() -> None:
    reading = Reading()
    reading.rebalance(1, P, Q)
    reading.reader._losses.on_partitions_revoked({P, Q})
    assert await reading.commit(P), "no other member owns it during the rebalance"
    reading.rebalance(2, Q, R)
    assert not await reading.commit(P)
    assert await reading.commit(Q)
    assert reading.consumer.committed == {P: 5, Q: 5}


async def test_a_returned_partition_is_not_committed_before_its_loss_was_reported() -> None:
    """Another member owned it and may have committed more; Kafka would accept the older offset."""
    reading = Reading()
    reading.rebalance(1, P, Q)
    reading.rebalance(4, P, Q, member_id="n")
    assert not await reading.commit(P, Q)
    assert reading.consumer.committed == {}
    await reading.reader.read(timeout_ms=0, max_records=1)
    assert sorted(reading.reader.pop_lost()) == names([P, Q])
    assert await reading.commit(P, Q)


async def test_a_partition_returned_two_rebalances_later_is_not_committed() -> None:
    reading = Reading()
    reading.rebalance(1, P, Q)
    reading.rebalance(2, Q)
    reading.rebalance(3, P, Q)
    assert not await reading.commit(P, Q)
    assert reading.consumer.committed == {Q: 5}


@pytest.mark.parametrize("generation", [2, 4])
async def test_a_commit_overtaken_by_a_rebalance_is_not_made(generation: int) -> None:
    reading = Reading()
    reading.rebalance(1, P)
    reading.consumer.answers.clear()
    committing = asyncio.create_task(reading.commit(P))
    await asyncio.sleep(0)
    reading.rebalance(generation, P)
    reading.consumer.answers.set()
    assert not await committing
    assert reading.consumer.committed == {}


async def test_a_commit_without_an_answer_from_the_broker_times_out() -> None:
    reading = Reading()
    reading.rebalance(1, P)
    reading.consumer.answers.clear()
    async with asyncio.timeout(5):
        with pytest.raises(BrokerUnavailable):
            await reading.commit(P)


async def test_a_refused_commit_returns_false_and_a_failed_one_raises() -> None:
    reading = Reading()
    reading.rebalance(1, P)
    reading.consumer.fails = CommitFailedError()
    assert not await reading.commit(P)
    reading.consumer.fails = UnknownError()
    with pytest.raises(BrokerUnavailable):
        await reading.commit(P)


async def test_a_rebalance_waits_a_limited_time_for_the_last_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The member may still commit, because no other member has the partitions yet."""
    monkeypatch.setattr(group_reader, "_PARTING_S", 0.01)
    reading = Reading()
    reading.rebalance(1, P)
    left: list[bool] = []

    async def part() -> None:
        left.append(await reading.commit(P))
        await asyncio.Event().wait()

    listener = group_reader._Rebalances(reading.reader._losses, part)
    assert reading.reader.partitions is not None
    async with asyncio.timeout(5):
        await listener.on_partitions_revoked({P})
    assert left == [True]
    assert reading.reader.partitions is None
    notes = await reading.reader.notes(names([P]), needs_end=lambda _: True)
    assert notes == {}, "the owner is unknown during the rebalance"
    reading.join(2, P)
    listener.on_partitions_assigned({P})
    assert reading.reader.partitions is not None


async def test_the_log_end_is_requested_only_for_the_metadata_that_needs_it() -> None:
    reading, asked = Reading(), list[TopicPartition]()
    reading.rebalance(1, P, Q, R)

    async def committed(_: object) -> dict[TopicPartition, SimpleNamespace]:
        return {P: SimpleNamespace(metadata="held"), Q: SimpleNamespace(metadata="")}

    async def end_offsets(partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        asked.extend(partitions)
        return dict.fromkeys(partitions, 9)

    reading.consumer._coordinator.fetch_committed_offsets = committed
    reading.consumer.end_offsets = end_offsets  # type: ignore[attr-defined]
    notes = await reading.reader.notes(names([P, Q, R]), needs_end=lambda note: note == "held")
    assert [notes[each] for each in names([P, Q, R])] == [("held", 9), ("", 0), ("", 0)]
    assert asked == [P]


async def test_metadata_is_refreshed_while_a_partition_has_no_position() -> None:
    """aiokafka keeps asking the leader that it knows, even if another broker leads now."""
    reading, asked, known = Reading(), [], {P}
    assignment = SimpleNamespace(
        tps={P, Q}, state_value=lambda partition: SimpleNamespace(has_valid_position=partition in known, position=0)
    )
    reading.consumer._subscription = SimpleNamespace(subscription=SimpleNamespace(assignment=assignment))
    reading.consumer._client = SimpleNamespace(force_metadata_update=lambda: asked.append("metadata"))
    await reading.reader.read(timeout_ms=1, max_records=1)
    known.add(Q)
    await reading.reader.read(timeout_ms=1, max_records=1)
    assert asked == ["metadata"]


def of(**positions: int) -> SimpleNamespace:
    """Return aiokafka's assignment of P and Q at these positions; a partition without a value has no position yet."""
    at = {P: positions.get("p"), Q: positions.get("q")}
    states = {each: SimpleNamespace(has_valid_position=found is not None, position=found) for each, found in at.items()}
    return SimpleNamespace(tps=at.keys(), state_value=states.__getitem__)


def test_an_advance_without_a_record_is_reported_once() -> None:
    """The position moves past a transaction marker after the last record, or past an aborted transaction before the
    first.
    """
    handed = FetchPositions()
    handed.begin(P, 4)
    handed.note_passed(of(p=4))
    assert handed.pop_passed() == {}
    handed.note_passed(of(p=5, q=3))
    assert handed.pop_passed() == {(P.topic, P.partition): 5, (Q.topic, Q.partition): 3}
    handed.note_passed(of(p=5, q=3))
    assert handed.pop_passed() == {}


def test_no_advance_is_reported_for_a_revoked_partition() -> None:
    handed = FetchPositions()
    handed.note_passed(of(p=5))
    handed.forget(P)
    assert handed.pop_passed() == {}
