"""Find the partitions that a member of a group has lost."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from aiokafka import TopicPartition

from shared.kafka.reading.unreadable import HandedOver
from shared.telemetry import metrics


class Membership(NamedTuple):
    """A consumer's membership of its group: which member it is, and since which assignment."""

    member_id: str
    generation: int

    @property
    def dropped(self) -> bool:
        """Return whether the group has gone on without this member. Of such a one Kafka takes a commit all the same
        while the group is empty, and another may have committed more."""
        return self.generation < 0

    def follows(self, earlier: "Membership") -> bool:
        """Return whether the group has had no other assignment between the two."""
        return self == (earlier.member_id, earlier.generation + 1)


class Losses:
    """Remembers which partitions were taken away.

    aiokafka takes all of them when a rebalance begins, and names this member's when it ends. A partition that is given
    back is not lost, unless this member's session had expired: then another member may have had it, and committed
    beyond what this one has open there.

    `since` is the membership of the last assignment; None before the first. `held` are this member's partitions; None
    before the first assignment and during a rebalance. `unread` are those lost since the reader last returned records:
    its owner may not know of them. `committing` is the commit under way, which a rebalance ends: aiokafka would retry
    it as the member that it has become."""

    def __init__(self, handed: HandedOver, membership: Callable[[], Membership | None]) -> None:
        self._handed = handed
        self._membership = membership
        self._away: list[tuple[str, int]] = []  # in a rebalance that goes on
        self.since: Membership | None = None
        self.held: frozenset[tuple[str, int]] | None = None
        self.committing: asyncio.Future[None] | None = None
        self.lost: list[tuple[str, int]] = []
        self.unread: set[tuple[str, int]] = set()
        self.revoked: list[tuple[str, int]] = []

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._end_commit()
        self.held = None
        taken = [(partition.topic, partition.partition) for partition in revoked]
        self._away += taken
        self.revoked += taken
        for partition in revoked:
            self._handed.forget(partition)

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        metrics.rebalances.inc()
        self._end_commit()
        before, self.since = self.since, self._membership()
        stayed = before is not None and self.since is not None and self.since.follows(before)
        self.held = frozenset((partition.topic, partition.partition) for partition in assigned)
        lost = [away for away in self._away if not stayed or away not in self.held]
        self.lost += lost
        self.unread.update(lost)
        self._away = []

    def _end_commit(self) -> None:
        if self.committing is not None:
            self.committing.cancel()
