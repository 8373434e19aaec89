"""aiokafka's interface for a partition assignor. `shared.wire.assignment` decides."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

from shared.wire.assignment import GroupMember, assign

_VERSION: Final = 0


class _Held(msgspec.Struct, frozen=True):
    """A member's message to the group's leader: the partitions that it owns, and the round of their assignment."""

    round: int
    partitions: dict[str, tuple[int, ...]]


class StickyAssignor:
    """A sticky partition assignor. Each consumer has its own instance, which remembers that consumer's assignment.

    aiokafka's sticky assignor keeps this state in its class, so that all consumers of a process share it, and it needs
    a second for 3,000 partitions and 100 members.
    """

    name = "replyline-sticky"

    def __init__(self) -> None:
        self._held = _Held(0, {})

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        return ConsumerProtocolMemberMetadata(_VERSION, sorted(topics), msgspec.msgpack.encode(self._held))

    def assign(
        self, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Assign the partitions of all members; only the group's leader calls this."""
        held = {name: _held(member.user_data) for name, member in members.items()}
        known = {
            name: GroupMember(frozenset(member.subscription), held[name].partitions, held[name].round)
            for name, member in members.items()
        }
        topics = {topic for member in known.values() for topic in member.topics}
        numbers = {topic: len(cluster.partitions_for_topic(topic) or ()) for topic in topics}
        shares = assign(numbers, known)
        newest = max((each.round for each in held.values()), default=0)
        same = all(held[name] == _Held(newest, _in_tuples(shares[name])) for name in shares)
        # Kafka starts a rebalance if a rejoining member sends other metadata than before, and aiokafka rejoins more
        # often than it must. So an unchanged assignment must keep its round, or rebalances would never end.
        this_round = msgspec.msgpack.encode(newest if same else newest + 1)
        return {
            name: ConsumerProtocolMemberAssignment(_VERSION, sorted(partitions.items()), this_round)
            for name, partitions in shares.items()
        }

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        this_round = msgspec.msgpack.decode(assignment.user_data, type=int)
        self._held = _Held(this_round, _in_tuples(dict(assignment.assignment)))


def _in_tuples(partitions: Mapping[str, Iterable[int]]) -> dict[str, tuple[int, ...]]:
    return {topic: tuple(numbers) for topic, numbers in sorted(partitions.items())}


def _held(user_data: Any) -> _Held:
    """Return what a member owns; nothing if its metadata is of another format."""
    try:
        return msgspec.msgpack.decode(user_data or b"", type=_Held)
    except msgspec.DecodeError:
        return _Held(0, {})
