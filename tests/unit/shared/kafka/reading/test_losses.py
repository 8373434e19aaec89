"""A partition that a rebalance gives back is not lost, unless another member may have had it meanwhile; what is lost
is not committed."""

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
from shared.kafka.reading.unreadable import HandedOver
from shared.settings.kafka import KafkaSettings

P, Q, R = (TopicPartition("t", number) for number in range(3))


@dataclass
class Group:
    """As aiokafka tells of it."""

    member: Membership | None = None
    losses: Losses = field(init=False)

    def __post_init__(self) -> None:
        self.losses = Losses(HandedOver(), lambda: self.member)

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


def test_only_what_is_not_given_back_is_lost() -> None:
    group = holding(P, Q)
    group.losses.on_partitions_revoked({P, Q})
    group.rebalance(2, Q, R)
    assert group.pop_lost() == names([P])
    assert sorted(group.losses.revoked) == names([P, Q])


def test_while_a_rebalance_goes_on_nothing_is_lost_yet() -> None:
    """A read that was waiting when it began returns in the middle of it."""
    group = holding(P, Q)
    group.losses.on_partitions_revoked({P, Q})
    assert group.pop_lost() == []
    group.rebalance(2, P)
    assert group.pop_lost() == names([Q])


def test_what_was_lost_stays_lost_when_the_next_rebalance_brings_it_back() -> None:
    """Nobody has asked in between; another member had it."""
    group = holding(P)
    group.losses.on_partitions_revoked({P})
    group.rebalance(2)
    group.losses.on_partitions_revoked(set())
    group.rebalance(3, P)
    assert group.pop_lost() == names([P])


def test_after_its_session_has_expired_a_member_has_lost_all_that_it_gets_back() -> None:
    """It is another member then."""
    group = holding(P, Q)
    group.member = Membership("", -1)
    assert group.member.dropped
    group.losses.on_partitions_revoked({P, Q})
    group.rebalance(3, P, Q, member_id="n")
    assert group.pop_lost() == names([P, Q])
    group.losses.on_partitions_revoked({P, Q})
    group.rebalance(4, P, Q, member_id="n")
    assert group.pop_lost() == []


def test_so_it_has_where_the_group_had_an_assignment_that_it_never_heard_of() -> None:
    group = holding(P)
    group.losses.on_partitions_revoked({P})
    group.rebalance(3, P)
    assert group.pop_lost() == names([P])


@dataclass
class FakeConsumer:
    """As aiokafka's, of a member whose group's other members come and go."""

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
        """Whoever is the member by then commits, as in aiokafka."""
        await self.answers.wait()
        if self.fails is not None:
            raise self.fails
        self.committed.update({partition: offset for partition, (offset, _) in offsets.items()})

    async def getmany(self, **_: object) -> dict[TopicPartition, list[Any]]:
        return {}


@dataclass
class Reading:
    """A member of a group that reads and commits."""

    consumer: FakeConsumer = field(default_factory=FakeConsumer)
    reader: GroupReader = field(init=False)

    def __post_init__(self) -> None:
        settings = KafkaSettings(request_timeout_ms=100)
        self.reader = GroupReader(settings, client_id="test", topics=["t"], group="g")
        self.reader._consumer = self.consumer

    def join(self, generation: int, *assigned: TopicPartition, member_id: str = "m") -> None:
        """The broker's answer; its assignment is told later."""
        self.consumer._coordinator = SimpleNamespace(member_id=member_id, generation=generation)
        self.consumer.held = set(assigned)

    def rebalance(self, generation: int, *assigned: TopicPartition, member_id: str = "m") -> None:
        self.reader._losses.on_partitions_revoked(set(self.consumer.held))
        self.join(generation, *assigned, member_id=member_id)
        self.reader._losses.on_partitions_assigned(set(assigned))

    async def commit(self, *partitions: TopicPartition) -> bool:
        return await self.reader.commit(dict.fromkeys(names(partitions), 5))


async def test_a_member_commits_from_its_first_assignment_on() -> None:
    reading = Reading()
    assert not await reading.commit(P)
    reading.join(1, P, Q)
    assert not await reading.commit(P), "it has not heard of its assignment yet"
    reading.reader._losses.on_partitions_assigned({P, Q})
    assert await reading.commit(P)
    assert reading.consumer.committed == {P: 5}


async def test_through_a_rebalance_it_commits_what_it_keeps() -> None:
    reading = Reading()
    reading.rebalance(1, P, Q)
    reading.reader._losses.on_partitions_revoked({P, Q})
    assert await reading.commit(P), "while it goes on, nobody else has it"
    reading.rebalance(2, Q, R)
    assert not await reading.commit(P)
    assert await reading.commit(Q)
    assert reading.consumer.committed == {P: 5, Q: 5}


async def test_what_it_lost_and_got_back_is_not_committed_before_its_owner_has_read_on() -> None:
    """Another member had it and may have committed more; Kafka would take it all the same."""
    reading = Reading()
    reading.rebalance(1, P, Q)
    reading.rebalance(4, P, Q, member_id="n")
    assert not await reading.commit(P, Q)
    assert reading.consumer.committed == {}
    await reading.reader.read(timeout_ms=0, max_records=1)
    assert sorted(reading.reader.pop_lost()) == names([P, Q])
    assert await reading.commit(P, Q)


async def test_a_partition_that_came_back_in_two_steps_is_not_either() -> None:
    reading = Reading()
    reading.rebalance(1, P, Q)
    reading.rebalance(2, Q)
    reading.rebalance(3, P, Q)
    assert not await reading.commit(P, Q)
    assert reading.consumer.committed == {Q: 5}


@pytest.mark.parametrize("generation", [2, 4])
async def test_a_commit_that_a_rebalance_overtakes_is_not_made_in_its_name(generation: int) -> None:
    reading = Reading()
    reading.rebalance(1, P)
    reading.consumer.answers.clear()
    committing = asyncio.create_task(reading.commit(P))
    await asyncio.sleep(0)
    reading.rebalance(generation, P)
    reading.consumer.answers.set()
    assert not await committing
    assert reading.consumer.committed == {}


async def test_a_commit_that_the_broker_does_not_answer_ends() -> None:
    reading = Reading()
    reading.rebalance(1, P)
    reading.consumer.answers.clear()
    async with asyncio.timeout(5):
        with pytest.raises(BrokerUnavailable):
            await reading.commit(P)


async def test_a_commit_that_the_broker_refuses_is_told_from_one_that_fails() -> None:
    reading = Reading()
    reading.rebalance(1, P)
    reading.consumer.fails = CommitFailedError()
    assert not await reading.commit(P)
    reading.consumer.fails = UnknownError()
    with pytest.raises(BrokerUnavailable):
        await reading.commit(P)


async def test_a_rebalance_waits_until_the_member_has_taken_leave_but_not_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Meanwhile it may commit: nobody else has the partitions yet."""
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
    assert await reading.reader.notes(names([P])) == {}, "who has it now is not known"
    reading.join(2, P)
    listener.on_partitions_assigned({P})
    assert reading.reader.partitions is not None


async def test_the_leaders_are_looked_for_while_a_partition_has_no_position() -> None:
    """aiokafka asks the leader that it knows, however long that leads no more."""
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
    """aiokafka's assignment of P and Q at these positions; a partition that is not named has none yet."""
    at = {P: positions.get("p"), Q: positions.get("q")}
    states = {each: SimpleNamespace(has_valid_position=found is not None, position=found) for each, found in at.items()}
    return SimpleNamespace(tps=at.keys(), state_value=states.__getitem__)


def test_a_log_that_went_on_without_a_record_is_passed_once() -> None:
    """By a transaction's marker behind its last record, or where all was aborted before the first."""
    handed = HandedOver()
    handed.begin(P, 4)
    handed.note_passed(of(p=4))
    assert handed.pop_passed() == {}
    handed.note_passed(of(p=5, q=3))
    assert handed.pop_passed() == {(P.topic, P.partition): 5, (Q.topic, Q.partition): 3}
    handed.note_passed(of(p=5, q=3))
    assert handed.pop_passed() == {}


def test_what_is_taken_away_is_not_passed() -> None:
    handed = HandedOver()
    handed.note_passed(of(p=5))
    handed.forget(P)
    assert handed.pop_passed() == {}
