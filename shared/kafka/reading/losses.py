"""Find the partitions that a group member has lost."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from aiokafka import TopicPartition

from shared.kafka.reading.unreadable import FetchPositions
from shared.telemetry import metrics


class Membership(NamedTuple):
    """A consumer's membership of its group: its member id and the generation of its last assignment."""

    member_id: str
    generation: int

    @property
    def dropped(self) -> bool:
        """Return whether the group removed this member.

        While a group is empty, Kafka accepts a commit from a removed member even if another member has committed a
        later offset.
        """
        return self.generation < 0

    def follows(self, earlier: "Membership") -> bool:
        """Return whether the group had no other assignment between the two memberships."""
        return self == (earlier.member_id, earlier.generation + 1)


class Losses:
    """Remembers which partitions a rebalance took away.

    aiokafka revokes all partitions when a rebalance begins, and assigns this member's when it ends. A partition that is
    assigned back is not lost, unless this member's session had expired: then another member may have owned it, and
    committed offsets beyond the records that are still open here.

    Attributes:
        since: the membership of the last assignment; None before the first one.
        held: this member's partitions; None before the first assignment and during a rebalance.
        unread: partitions lost since the reader last returned records; their owner may not know that yet.
        committing: the commit under way. A rebalance cancels it, because aiokafka would retry it in the new generation.
    """

    def __init__(self, handed: FetchPositions, membership: Callable[[], Membership | None]) -> None:
        self._positions = handed
        self._membership = membership
        self._away: list[tuple[str, int]] = []  # revoked in the current rebalance
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
            self._positions.forget(partition)

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
