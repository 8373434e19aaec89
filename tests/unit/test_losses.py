"""A partition that a rebalance gives back is not lost, unless another member may have had it meanwhile."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from aiokafka import TopicPartition

from shared.kafka.losses import Losses, Membership
from shared.kafka.unreadable import HandedOver

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

    def take_lost(self) -> list[tuple[str, int]]:
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
    assert group.take_lost() == names([P])
    assert sorted(group.losses.revoked) == names([P, Q])


def test_while_a_rebalance_goes_on_nothing_is_lost_yet() -> None:
    """A read that was waiting when it began returns in the middle of it."""
    group = holding(P, Q)
    group.losses.on_partitions_revoked({P, Q})
    assert group.take_lost() == []
    group.rebalance(2, P)
    assert group.take_lost() == names([Q])


def test_what_was_lost_stays_lost_when_the_next_rebalance_brings_it_back() -> None:
    """Nobody has asked in between; another member had it."""
    group = holding(P)
    group.losses.on_partitions_revoked({P})
    group.rebalance(2)
    group.losses.on_partitions_revoked(set())
    group.rebalance(3, P)
    assert group.take_lost() == names([P])


def test_after_its_session_has_expired_a_member_has_lost_all_that_it_gets_back() -> None:
    """It is another member then."""
    group = holding(P, Q)
    group.member = Membership("", -1)
    assert group.member.dropped
    group.losses.on_partitions_revoked({P, Q})
    group.rebalance(3, P, Q, member_id="n")
    assert group.take_lost() == names([P, Q])
    group.losses.on_partitions_revoked({P, Q})
    group.rebalance(4, P, Q, member_id="n")
    assert group.take_lost() == []


def test_so_it_has_where_the_group_had_an_assignment_that_it_never_heard_of() -> None:
    group = holding(P)
    group.losses.on_partitions_revoked({P})
    group.rebalance(3, P)
    assert group.take_lost() == names([P])
