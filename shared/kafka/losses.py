"""Which partitions a member of a group has lost."""

from collections.abc import Callable
from typing import NamedTuple

from aiokafka import ConsumerRebalanceListener, TopicPartition

from shared import metrics
from shared.kafka.unreadable import HandedOver


class Membership(NamedTuple):
    """Which member of its group a consumer is, and since which of the group's assignments, counted."""

    member_id: str
    generation: int

    @property
    def dropped(self) -> bool:
        """Whether the group has gone on without it. Of such a one Kafka takes a commit all the same while the group is
        empty, and another may have committed more."""
        return self.generation < 0

    def follows(self, earlier: "Membership") -> bool:
        """Whether the group has had no other assignment between the two."""
        return self == (earlier.member_id, earlier.generation + 1)


class Losses(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    """Remembers which partitions were taken away.

    aiokafka takes all of them at the beginning of each rebalance, and says at its end which are this member's now. One
    given back is not lost, unless the group went on without this member for a while (its session had expired): then
    another may have had it, and committed beyond what this one has open there.
    """

    def __init__(self, handed: HandedOver, membership: Callable[[], Membership | None]) -> None:
        self._handed = handed
        self._membership = membership
        self._since: Membership | None = None
        self._away: list[tuple[str, int]] = []  # in a rebalance that goes on
        self.lost: list[tuple[str, int]] = []
        self.revoked: list[tuple[str, int]] = []

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        taken = [(partition.topic, partition.partition) for partition in revoked]
        self._away += taken
        self.revoked += taken
        for partition in revoked:
            self._handed.forget(partition)

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        metrics.rebalances.inc()
        before, self._since = self._since, self._membership()
        stayed = before is not None and self._since is not None and self._since.follows(before)
        back = {(partition.topic, partition.partition) for partition in assigned} if stayed else set()
        self.lost += [away for away in self._away if away not in back]
        self._away = []
