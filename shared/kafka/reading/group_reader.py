"""Read topics as a member of a consumer group."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

from shared.errors import BrokerUnavailable
from shared.kafka.broker.connection import start_or_stop, until_connected
from shared.kafka.broker.records import Record
from shared.kafka.reading.assignor import StickyAssignor
from shared.kafka.reading.fetch_sessions import fetch_by_sessions
from shared.kafka.reading.losses import Losses, Membership
from shared.kafka.reading.reader import TopicReader
from shared.process.tasks import abandon
from shared.settings.kafka import KafkaSettings
from shared.telemetry import metrics

_PARTING_S = 1.0
_HEARTBEATS = 20  # in one session timeout
_LEAST_HEARTBEAT_MS = 100
# A member learns of new partitions after at most this time; no member reads them before.
_METADATA_MS = 5_000

Parting = Callable[[], Awaitable[None]]


class _Rebalances(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    """Passes aiokafka's rebalances to `Losses`.

    It awaits `parting` before it gives partitions back; until `parting` returns, this member may still commit them.
    """

    def __init__(self, losses: Losses, parting: Parting) -> None:
        self._losses = losses
        self._parting = parting

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._losses.on_partitions_revoked(revoked)
        if revoked:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PARTING_S):
                    await self._parting()

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._losses.on_partitions_assigned(assigned)


class GroupReader(TopicReader):
    """Reads topics as a member of a consumer group. The caller commits offsets."""

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        client_id: str,
        topics: Sequence[str],
        group: str,
        instance_id: str = "",
        unhurried: bool = False,
    ) -> None:
        super().__init__(settings, client_id=client_id, source=", ".join(topics), unhurried=unhurried)
        self.topics = topics
        self._group = group
        self._instance_id = instance_id
        self._losses = Losses(self._positions, self._membership)
        self._resting = False

    async def start(self, parting: Parting) -> None:
        """Join the group.

        Args:
            parting: awaited when a rebalance takes partitions away, for at most a second.
        """
        self._consumer = await until_connected(f"kafka group {self._group}", partial(self._connect, parting))

    async def _connect(self, parting: Parting) -> AIOKafkaConsumer:
        consumer = fetch_by_sessions(
            AIOKafkaConsumer(
                **self._options(),
                group_id=self._group,
                group_instance_id=self._instance_id or None,
                partition_assignment_strategy=(StickyAssignor(),),
                session_timeout_ms=self._settings.session_timeout_ms,
                heartbeat_interval_ms=_heartbeat_ms(self._settings.session_timeout_ms),
                metadata_max_age_ms=_METADATA_MS,
            )
        )
        await start_or_stop(consumer, self._settings)
        consumer.subscribe(list(self.topics), listener=_Rebalances(self._losses, parting))
        return consumer

    async def read(self, *, timeout_ms: int, max_records: int) -> list[Record]:
        """Return the records that have arrived; an empty list after the timeout.

        Call `pop_lost()` right after this, before any other coroutine runs. Partitions lost before this call may have
        been assigned to this member again; a later commit for them applies to the new read.
        """
        records = await self._read(timeout_ms=timeout_ms, max_records=max_records)
        self._losses.unread.clear()
        if not records:
            self._look_around(self._started)
        return records

    def _look_around(self, consumer: AIOKafkaConsumer) -> None:
        """Record where a log advanced without a record, and refresh the metadata if a partition has no position yet.

        Without new metadata aiokafka asks the leader that it knows again and again, and reads nothing else from that
        broker.
        """
        subscription = consumer._subscription.subscription  # noqa: SLF001
        held = subscription.assignment if subscription is not None else None
        if held is not None:
            self._positions.note_passed(held)
            if not all(held.state_value(each).has_valid_position for each in held.tps):
                consumer._client.force_metadata_update()  # noqa: SLF001

    @property
    def partitions(self) -> frozenset[tuple[str, int]] | None:
        """Return the partitions of this member; None during a rebalance."""
        return self._losses.held

    @property
    def alone(self) -> bool:
        """Return whether this member owns all partitions, so that the group has no other member to take them."""
        held, consumer = self._losses.held, self._consumer
        if held is None or consumer is None:
            return False
        return len(held) == sum(len(consumer.partitions_for_topic(topic) or ()) for topic in self.topics)

    def _membership(self) -> Membership | None:
        """Return the membership that the coordinator sent last. aiokafka has no public name for it."""
        if self._consumer is None:
            return None
        coordinator = self._consumer._coordinator  # noqa: SLF001
        return Membership(coordinator.member_id, coordinator.generation)

    def pop_lost(self) -> list[tuple[str, int]]:
        """Return and clear the partitions that another member owns, or may have owned, since the last call."""
        lost, self._losses.lost = self._losses.lost, []
        return lost

    def pop_passed(self) -> dict[tuple[str, int], int]:
        """Return the partitions whose log advanced without a record since the last call, each with its next offset."""
        return self._positions.pop_passed()

    def pop_revoked(self) -> list[tuple[str, int]]:
        """Return and clear the partitions that a rebalance revoked since the last call, including those assigned
        back."""
        revoked, self._losses.revoked = self._losses.revoked, []
        return revoked

    def rest(self, topics: Collection[str]) -> None:
        """Pause these topics until the next call, and resume all others."""
        if self._consumer is None or not (topics or self._resting):
            return
        self._resting = bool(topics)
        paused = self._consumer.paused()
        wanted = {partition for partition in self._consumer.assignment() if partition.topic in topics}
        if wanted - paused:
            self._consumer.pause(*(wanted - paused))
        if paused - wanted:
            self._consumer.resume(*(paused - wanted))

    async def notes(
        self, partitions: Sequence[tuple[str, int]], *, needs_end: Callable[[str], bool]
    ) -> dict[tuple[str, int], tuple[str, int]]:
        """Return each partition's commit metadata and the end of its log.

        Partitions that this member does not own are left out; during a rebalance the result is empty.

        Args:
            partitions: the partitions to look up.
            needs_end: returns whether the end is needed, given the metadata; else it is 0. A request for it waits
                behind the fetch under way, for up to `kafka.fetch_max_wait_ms`.

        Raises:
            BrokerUnavailable: Kafka does not answer in time.
        """
        consumer, since = self._consumer, self._losses.since
        if consumer is None or self.partitions is None:
            return {}
        assigned = consumer.assignment()
        ours = [each for each in (TopicPartition(*partition) for partition in partitions) if each in assigned]
        try:
            async with asyncio.timeout(self._settings.request_timeout_ms / 1_000):
                # `committed` does not return the metadata, and no other public name does.
                committed = await consumer._coordinator.fetch_committed_offsets(ours)  # noqa: SLF001
                found = {each: (committed[each].metadata or "") if each in committed else "" for each in ours}
                asked = [each for each, note in found.items() if needs_end(note)]
                ends = await consumer.end_offsets(asked) if asked else {}
        except (KafkaError, TimeoutError) as error:
            raise BrokerUnavailable(f"cannot read the commit metadata of {self._source}: {error!r}") from error
        if self.partitions is None or self._losses.since != since:
            return {}
        return {(each.topic, each.partition): (note, ends.get(each, 0)) for each, note in found.items()}

    async def commit(
        self, offsets: Mapping[tuple[str, int], int], notes: Mapping[tuple[str, int], str] | None = None
    ) -> bool:
        """Commit each partition's next offset, with its metadata.

        Returns:
            False if a rebalance took a partition away, or may have. Kafka checks which member commits, but not whether
            another
            one has committed a later offset.

        Raises:
            BrokerUnavailable: the commit failed or did not complete within one request's timeout.
        """
        if self._consumer is None or not offsets:
            return True
        membership = self._membership()
        if membership is None or membership.dropped or membership != self._losses.since:
            return False
        assigned = self._consumer.assignment()
        held = {TopicPartition(*key): offset for key, offset in offsets.items() if key not in self._losses.unread}
        noted = notes or {}
        ours = {
            each: (at, noted.get((each.topic, each.partition), "")) for each, at in held.items() if each in assigned
        }
        if not ours:
            return False
        return await self._committed(self._consumer, ours) and len(ours) == len(offsets)

    async def _committed(self, consumer: AIOKafkaConsumer, offsets: Mapping[TopicPartition, tuple[int, str]]) -> bool:
        """Commit, and return False if a rebalance interrupted it.

        Raises:
            BrokerUnavailable: the commit failed or did not complete in time.
        """
        committing = self._losses.committing = asyncio.ensure_future(consumer.commit(offsets))
        try:
            with metrics.kafka_time.labels("commit").time():
                done, _ = await asyncio.wait([committing], timeout=self._settings.request_timeout_ms / 1_000)
        finally:
            abandon(committing)
        if not done:
            raise BrokerUnavailable("cannot commit: the broker does not answer in time")
        if committing.cancelled():
            return False
        try:
            committing.result()
        except (CommitFailedError, IllegalStateError):
            return False
        except KafkaError as error:
            raise BrokerUnavailable(f"cannot commit: {error!r}") from error
        return True

    async def lag(self) -> dict[str, int]:
        """Return the number of uncommitted records of this member's partitions, by topic.

        The broker is asked, because paused partitions are not fetched.

        Raises:
            BrokerUnavailable: Kafka does not answer in time.
        """
        lag = dict.fromkeys(self.topics, 0)
        consumer = self._consumer
        if consumer is None:
            return lag
        try:
            async with asyncio.timeout(self._settings.request_timeout_ms / 1_000):
                ends = await consumer.end_offsets(consumer.assignment())
                committed = await asyncio.gather(*[consumer.committed(partition) for partition in ends])
                for (partition, end), start in zip(ends.items(), committed, strict=True):
                    # nothing was ever committed
                    begun = start if start is not None else await consumer.position(partition)
                    lag[partition.topic] += max(0, end - begun)
        except (KafkaError, TimeoutError) as error:
            raise BrokerUnavailable(f"cannot read the lag of {self._source}: {error!r}") from error
        return lag

    async def leave(self) -> None:
        """Stop and leave the group, so that others get the partitions immediately.

        Plain `stop` keeps a static member's partitions assigned to it.
        """
        if self._consumer is not None:
            # aiokafka sends LeaveGroup only for a member without an instance id.
            self._consumer._coordinator._group_instance_id = None  # noqa: SLF001
        await self.stop()
        self._losses.held = frozenset()


def _heartbeat_ms(session_timeout_ms: int) -> int:
    """Return the interval between heartbeats.

    A member learns of a rebalance from the answer to its heartbeat, and reading resumes when the last member has
    rejoined, so a short interval shortens rebalances.
    """
    return min(session_timeout_ms // 4, max(_LEAST_HEARTBEAT_MS, session_timeout_ms // _HEARTBEATS))
