"""Group members join and leave: a partition that a member keeps is never reported lost, at any moment."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest_asyncio

from ops.stack.kafka_broker import KafkaBroker
from shared.kafka import GroupReader, create_topics
from shared.settings.kafka import KafkaSettings
from tests.support.system import eventually

PARTITIONS = 6
Parting = Callable[[], Awaitable[None]]


async def at_once() -> None:
    """Give partitions back without waiting."""


@dataclass
class Member:
    """Reads continuously and checks for losses immediately, like a worker's intake."""

    reader: GroupReader
    lost: list[tuple[str, int]] = field(default_factory=list)
    looks: int = 0
    looks_in_a_rebalance: int = 0

    @property
    def has(self) -> set[tuple[str, int]]:
        assert self.reader._consumer is not None
        return {(partition.topic, partition.partition) for partition in self.reader._consumer.assignment()}

    @property
    def in_a_rebalance(self) -> bool:
        assert self.reader._consumer is not None
        return bool(self.reader._consumer._subscription.reassignment_in_progress)

    async def read(self) -> None:
        while True:
            await self.reader.read(timeout_ms=20, max_records=100)
            self.looks_in_a_rebalance += self.in_a_rebalance
            self.lost += self.reader.pop_lost()
            self.looks += 1


@dataclass
class Group:
    settings: KafkaSettings
    topic: str
    name: str

    @asynccontextmanager
    async def member(self, number: int, *, parting: Parting = at_once) -> AsyncIterator[Member]:
        """A member that gives its partitions back once `parting` has ended."""
        settings = self.settings.model_copy(update={"session_timeout_ms": 6_000})
        reader = GroupReader(settings, client_id=f"m{number}", topics=[self.topic], group=self.name)
        await reader.start(parting)
        member = Member(reader)
        reading = asyncio.create_task(member.read())
        try:
            yield member
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await reader.stop()


@pytest_asyncio.fixture
async def group(kafka_broker: KafkaBroker, topic_prefix: str, unique: Callable[[str], str]) -> Group:
    settings = KafkaSettings(bootstrap_servers=kafka_broker.bootstrap)
    topic = topic_prefix + unique("rebalance")
    await create_topics(settings, {topic: PARTITIONS})
    return Group(settings, topic, unique("group"))


async def settled(*members: Member) -> None:
    """Wait until every partition has one member, shares are equal, and each member has checked since."""

    def even() -> bool:
        return all(not member.in_a_rebalance and len(member.has) == PARTITIONS // len(members) for member in members)

    await eventually(even)
    looked = [member.looks for member in members]
    await eventually(lambda: all(member.looks > before + 1 for member, before in zip(members, looked, strict=True)))


async def test_a_returned_partition_is_not_lost_however_long_the_others_take(group: Group) -> None:
    async def until_one_waits() -> None:
        await eventually(lambda: one.looks_in_a_rebalance)

    async with group.member(1) as one, group.member(2, parting=until_one_waits) as two:
        await settled(one, two)
        one.looks_in_a_rebalance = 0
        before = {id(member): member.has for member in (one, two)}
        for member in (one, two):
            member.lost.clear()
        async with group.member(3) as three:
            await settled(one, two, three)
            for member in (one, two):
                assert sorted(member.lost) == sorted(before[id(member)] - member.has)
    assert one.looks_in_a_rebalance > 0, "it had to wait for the other"


async def test_a_member_that_had_left_the_group_has_lost_every_returned_partition_and_commits_nothing(
    group: Group,
) -> None:
    """As after its session has expired."""
    async with group.member(1) as one:
        await settled(one)
        assert one.reader._consumer is not None
        await one.reader._consumer._coordinator._maybe_leave_group()
        assert not await one.reader.commit({(group.topic, 0): 1})
        await eventually(lambda: one.reader.commit({(group.topic, 0): 0}))
        await settled(one)
        assert sorted(one.lost) == sorted(one.has)


async def test_a_member_without_a_partition_waits_for_one(group: Group) -> None:
    """There are more members than partitions: it has an empty assignment, which differs from an unknown one."""
    async with AsyncExitStack() as stack:
        others = [await stack.enter_async_context(group.member(number)) for number in range(PARTITIONS - 1)]
        async with group.member(PARTITIONS) as last:
            await settled(*others, last)
            async with group.member(PARTITIONS + 1) as idle:
                await eventually(lambda: idle.reader.partitions == frozenset())
                assert await idle.reader.lag() == {group.topic: 0}
                assert await idle.reader.commit({})
                assert not await idle.reader.commit({(group.topic, 0): 1})
                given = last.reader.partitions
                assert given
                await last.reader.stop()
                await eventually(lambda: idle.reader.partitions == given)
