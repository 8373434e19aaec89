"""Each consumer sends the group its current partitions in aiokafka's own message format and receives its assignment."""

from typing import Any

from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

from shared.kafka.reading.assignor import StickyAssignor

TOPICS = ("long", "short")


class Cluster:
    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(4)) if topic in TOPICS else None


def share_out(group: dict[str, StickyAssignor], *, topics: tuple[str, ...] = TOPICS) -> dict[str, set[int]]:
    """Run one rebalance, encoded as on the wire; return the partitions of the first topic by member."""
    cluster: Any = Cluster()
    told = {
        name: ConsumerProtocolMemberMetadata.decode(member.metadata(topics).encode()) for name, member in group.items()
    }
    leader = next(iter(group.values()))
    for name, assignment in leader.assign(cluster, told).items():
        group[name].on_assignment(ConsumerProtocolMemberAssignment.decode(assignment.encode()))
    return {name: set(member._held.partitions.get("long", ())) for name, member in group.items()}


def test_a_member_keeps_its_partitions_when_another_joins() -> None:
    group = {"a": StickyAssignor(), "b": StickyAssignor()}
    before = share_out(group)
    assert {name: len(numbers) for name, numbers in before.items()} == {"a": 2, "b": 2}
    after = share_out({**group, "c": StickyAssignor()})
    assert after["a"] <= before["a"]
    assert after["b"] <= before["b"]
    assert len(after["c"]) == 1


def test_a_member_that_rejoins_without_a_change_sends_the_same_metadata() -> None:
    """Kafka starts another rebalance if a member's metadata changes, so changing metadata would rebalance for ever."""
    group = {"a": StickyAssignor(), "b": StickyAssignor()}
    share_out(group)
    told = [member.metadata(TOPICS).encode() for member in group.values()]
    share_out(group)
    assert [member.metadata(TOPICS).encode() for member in group.values()] == told


def test_two_consumers_in_one_process_keep_separate_partitions() -> None:
    one, other = {"a": StickyAssignor()}, {"b": StickyAssignor()}
    share_out(one)
    share_out(other, topics=("short",))
    assert one["a"]._held.partitions == {"long": (0, 1, 2, 3), "short": (0, 1, 2, 3)}
    assert other["b"]._held.partitions == {"short": (0, 1, 2, 3)}


def test_a_member_that_missed_a_rebalance_does_not_reclaim_its_old_partitions() -> None:
    away, stayed = StickyAssignor(), {"b": StickyAssignor(), "c": StickyAssignor()}
    share_out({"a": away})
    share_out({"a": away, **stayed})
    before = share_out(stayed)
    after = share_out({"a": away, **stayed})
    assert all(after[name] <= before[name] for name in stayed)
    assert sum(map(len, after.values())) == 4


def test_a_member_with_missing_or_foreign_metadata_has_no_known_partitions() -> None:
    cluster: Any = Cluster()
    told = {
        name: ConsumerProtocolMemberMetadata(0, ["long", "gone"], user_data)
        for name, user_data in (("a", b""), ("b", b"\xc1"), ("c", None))
    }
    shares = StickyAssignor().assign(cluster, told)
    assert sorted(partition for share in shares.values() for _, partition in share.partitions()) == [0, 1, 2, 3]
    assert {topic for share in shares.values() for topic, _ in share.assignment} == {"long"}
