"""A consumer tells its group what it has, and is told what it is to have, in aiokafka's own words."""

from typing import Any

from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

from shared.kafka.reading.assignor import StickyAssignor

TOPICS = ("long", "short")


class Cluster:
    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(4)) if topic in TOPICS else None


def share_out(group: dict[str, StickyAssignor], *, topics: tuple[str, ...] = TOPICS) -> dict[str, set[int]]:
    """A rebalance, as it goes over the wire; by member, what it has of the first topic."""
    cluster: Any = Cluster()
    told = {
        name: ConsumerProtocolMemberMetadata.decode(member.metadata(topics).encode()) for name, member in group.items()
    }
    leader = next(iter(group.values()))
    for name, assignment in leader.assign(cluster, told).items():
        group[name].on_assignment(ConsumerProtocolMemberAssignment.decode(assignment.encode()))
    return {name: set(member._held.partitions.get("long", ())) for name, member in group.items()}


def test_each_keeps_what_it_had_when_another_joins() -> None:
    group = {"a": StickyAssignor(), "b": StickyAssignor()}
    before = share_out(group)
    assert {name: len(numbers) for name, numbers in before.items()} == {"a": 2, "b": 2}
    after = share_out({**group, "c": StickyAssignor()})
    assert after["a"] <= before["a"]
    assert after["b"] <= before["b"]
    assert len(after["c"]) == 1


def test_who_joins_again_though_nothing_has_changed_tells_the_same() -> None:
    """Kafka has all join again where a member tells another thing than before: that would never end."""
    group = {"a": StickyAssignor(), "b": StickyAssignor()}
    share_out(group)
    told = [member.metadata(TOPICS).encode() for member in group.values()]
    share_out(group)
    assert [member.metadata(TOPICS).encode() for member in group.values()] == told


def test_two_consumers_of_one_process_do_not_mix_up_what_they_have() -> None:
    one, other = {"a": StickyAssignor()}, {"b": StickyAssignor()}
    share_out(one)
    share_out(other, topics=("short",))
    assert one["a"]._held.partitions == {"long": (0, 1, 2, 3), "short": (0, 1, 2, 3)}
    assert other["b"]._held.partitions == {"short": (0, 1, 2, 3)}


def test_who_was_away_while_the_group_went_on_takes_nothing_back() -> None:
    away, stayed = StickyAssignor(), {"b": StickyAssignor(), "c": StickyAssignor()}
    share_out({"a": away})
    share_out({"a": away, **stayed})
    before = share_out(stayed)
    after = share_out({"a": away, **stayed})
    assert all(after[name] <= before[name] for name in stayed)
    assert sum(map(len, after.values())) == 4


def test_of_a_member_that_tells_nothing_or_another_thing_nothing_is_known() -> None:
    cluster: Any = Cluster()
    told = {
        name: ConsumerProtocolMemberMetadata(0, ["long", "gone"], user_data)
        for name, user_data in (("a", b""), ("b", b"\xc1"), ("c", None))
    }
    shares = StickyAssignor().assign(cluster, told)
    assert sorted(partition for share in shares.values() for _, partition in share.partitions()) == [0, 1, 2, 3]
    assert {topic for share in shares.values() for topic, _ in share.assignment} == {"long"}
