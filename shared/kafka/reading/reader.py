"""Read partitions without a consumer group: a topic's partitions from their end, or one partition from an offset."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Container, Sequence
from functools import partial
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    KafkaError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

from shared.errors import BrokerRefuses, BrokerUnavailable
from shared.kafka.broker.administration import more_partitions_command
from shared.kafka.broker.connection import has_connection, start_or_stop, stop_consumer, until_connected
from shared.kafka.broker.options import consumer_options
from shared.kafka.broker.records import Record
from shared.kafka.broker.refusals import unauthorized
from shared.kafka.reading.fetch_sessions import fetch_by_sessions
from shared.kafka.reading.scan import offsets_since
from shared.kafka.reading.unreadable import FetchPositions
from shared.process.clock import monotonic_s
from shared.settings.kafka import KafkaSettings
from shared.telemetry.availability import Availability

_RETRY_S: Final = 0.2


class TopicReader:
    """A consumer with `start`, `read` and `stop`.

    Args:
        source: what it reads, for error messages.
        unhurried: fetch less often: records arrive a little later and cost less.
    """

    def __init__(self, settings: KafkaSettings, *, client_id: str, source: str, unhurried: bool) -> None:
        self._settings = settings
        self._client_id = client_id
        self._source = source
        self._unhurried = unhurried
        self._consumer: AIOKafkaConsumer | None = None
        self._positions = FetchPositions()

    @property
    def connected(self) -> bool:
        """Return whether the consumer has a connection to the broker now."""
        return has_connection(self._consumer)

    async def stop(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await stop_consumer(consumer, limit_s=self._settings.request_timeout_ms / 1_000)

    async def _end(self, place: TopicPartition) -> int:
        """Return the offset that the partition's next record will get.

        Raises:
            BrokerUnavailable: Kafka does not answer.
        """
        try:
            ends = await self._started.end_offsets([place])
        except KafkaError as error:
            raise BrokerUnavailable(f"cannot read the end of {place}: {error!r}") from error
        return int(ends[place])

    @property
    def _started(self) -> AIOKafkaConsumer:
        assert self._consumer is not None, "used before start"
        return self._consumer

    def _options(self) -> dict[str, Any]:
        return consumer_options(self._settings, self._client_id, unhurried=self._unhurried)

    async def _read(
        self, *, timeout_ms: int, max_records: int | None, keys: Container[bytes | None] | None = None
    ) -> list[Record]:
        """Return the records that have arrived; an empty list after the timeout.

        Raises:
            BrokerRefuses: the broker's ACLs deny reading.
            BrokerUnavailable: the broker is not reachable.
        """
        try:
            return await self._positions.read(
                self._started,
                timeout_ms=timeout_ms,
                max_records=max_records,
                limit_ms=self._settings.request_timeout_ms,
                keys=keys,
            )
        except (GroupAuthorizationFailedError, TopicAuthorizationFailedError) as error:
            raise BrokerRefuses(unauthorized(error, self._settings, "read")) from error
        except KafkaError as error:
            raise BrokerUnavailable(f"cannot read {self._source}: {error!r}") from error


class PartitionReader(TopicReader):
    """Reads partitions of a topic from their end, without a consumer group.

    Args:
        partitions: the partitions to read; None for all that the topic has at the start.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        client_id: str,
        topic: str,
        partitions: Sequence[int] | None = None,
        unhurried: bool = False,
    ) -> None:
        super().__init__(settings, client_id=client_id, source=topic, unhurried=unhurried)
        self._topic = topic
        self._partitions = partitions

    async def start(self, *, since_unix_ms: int | None = None) -> None:
        """Wait for the broker and for the partitions' ends: records produced after this returns will be read.

        Args:
            since_unix_ms: also read the records written at this time or later.
        """
        self._consumer = await until_connected(f"kafka topic {self._topic}", partial(self._connect, since_unix_ms))

    async def _connect(self, since_unix_ms: int | None) -> AIOKafkaConsumer:
        # Without a group, a consumer gets all partitions of its topic once the broker has returned its metadata.
        consumer = fetch_by_sessions(AIOKafkaConsumer(self._topic, **self._options()))
        await start_or_stop(consumer, self._settings)
        try:
            assigned = self._assign(consumer)
            # Not `seek_to_end`: the consumer is already looking up the beginning, and the answer that arrives first
            # would win.
            consumer.pause(*assigned)  # else the broker answers only after each fetch has waited its time
            begins = await offsets_since(consumer, assigned, since_unix_ms)
            consumer.resume(*assigned)
            for partition, begin in begins.items():
                consumer.seek(partition, begin)
                self._positions.begin(partition, begin)
        except BaseException:
            await stop_consumer(consumer, limit_s=self._settings.request_timeout_ms / 1_000)
            raise
        return consumer

    def _assign(self, consumer: AIOKafkaConsumer) -> list[TopicPartition]:
        known = {partition.partition for partition in consumer.assignment()}
        wanted = set(self._partitions) if self._partitions is not None else known
        if not known or wanted - known:
            remedy = "replyline topics create"
            if known:  # `topics create` does not change an existing topic
                remedy = more_partitions_command(self._settings, self._topic, max(wanted) + 1)
            raise UnknownTopicOrPartitionError(
                f"{self._topic} has partitions {sorted(known)}, wanted {sorted(wanted)}; run: {remedy}"
            )
        assigned = [TopicPartition(self._topic, number) for number in sorted(wanted)]
        # With a subscription aiokafka would restart all partitions at their beginning when the topic gets a new one.
        consumer.unsubscribe()
        consumer.assign(assigned)
        return assigned

    @property
    def num_partitions(self) -> int:
        """Return the topic's number of partitions in this reader's metadata."""
        return len(self._started.partitions_for_topic(self._topic) or ())

    async def follow(self, partitions: Collection[int], *, since_unix_ms: int) -> None:
        """Read exactly these partitions after this call.

        Partitions that were read before continue; new ones begin with the records written at `since_unix_ms` or later.

        Raises:
            BrokerUnavailable: Kafka does not answer in time. Nothing has changed then.
        """
        consumer = self._started
        wanted = {TopicPartition(self._topic, number) for number in partitions}
        before = consumer.assignment()
        if wanted == before:
            return
        consumer.pause(*before)  # else the broker answers each of the lookups only after a fetch has waited its time
        try:
            async with asyncio.timeout(self._settings.request_timeout_ms / 1_000):
                begins = await offsets_since(consumer, sorted(wanted - before), since_unix_ms)
        except (KafkaError, TimeoutError) as error:
            raise BrokerUnavailable(f"cannot find the offsets of {self._topic} at a time: {error!r}") from error
        finally:
            consumer.resume(*before)
        consumer.assign(sorted(wanted))
        for partition in before - wanted:
            self._positions.forget(partition)
        for partition, begin in begins.items():
            self._positions.begin(partition, begin)
        for partition in wanted:  # no await here, so no partition is read before all have been positioned
            consumer.seek(partition, self._positions.next_offset(partition))

    async def read(self, *, timeout_ms: int = 500, max_records: int | None = None) -> list[Record]:
        """Return the records that have arrived; an empty list after the timeout."""
        if not self._started.assignment():
            await asyncio.sleep(timeout_ms / 1_000)
            return []
        return await self._read(timeout_ms=timeout_ms, max_records=max_records)

    async def end(self, partition: int) -> int:
        """Return the offset that the partition's next record will get. Raises `BrokerUnavailable`."""
        return await self._end(TopicPartition(self._topic, partition))

    def next_offset(self, partition: int) -> int | None:
        """Return the offset of the next record to read; None before `start`."""
        return self._positions.next_offset(TopicPartition(self._topic, partition))


class LogReader(TopicReader):
    """Reads one partition from an offset, without a consumer group: call `start`, then `seek`."""

    def __init__(
        self, settings: KafkaSettings, *, client_id: str, topic: str, partition: int, unhurried: bool = False
    ) -> None:
        self._place = TopicPartition(topic, partition)
        super().__init__(settings, client_id=client_id, source=str(self._place), unhurried=unhurried)

    async def start(self) -> None:
        """Wait for the broker."""
        self._consumer = await until_connected(f"kafka log {self._place.topic}", self._connect)

    async def _connect(self) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(**self._options())
        await start_or_stop(consumer, self._settings)
        consumer.assign([self._place])
        return consumer

    def seek(self, offset: int) -> None:
        self._started.seek(self._place, offset)
        self._positions.begin(self._place, offset)

    async def end(self) -> int:
        """Return the offset that the next written record will get.

        Raises:
            BrokerUnavailable: Kafka does not answer.
        """
        return await self._end(self._place)

    async def next_offset(self) -> int:
        """Return the offset of the next record to read."""
        return int(await self._started.position(self._place))

    async def read(
        self, *, timeout_ms: int, max_records: int, keys: Container[bytes | None] | None = None
    ) -> list[Record]:
        """Return the records that have arrived, as `TopicReader._read` does.

        Args:
            timeout_ms: return an empty list after this time.
            max_records: return at most this many.
            keys: return only records with one of these keys; skipping a record costs half of what returning it costs.
        """
        return await self._read(timeout_ms=timeout_ms, max_records=max_records, keys=keys)


async def read_on(
    what: str, read: Callable[[], Awaitable[list[Record]]], handle: Callable[[list[Record]], None]
) -> None:
    """Read and handle batches until cancelled. `what` names the source in the log during an outage."""
    outage = Availability(what)
    while True:
        try:
            records = await read()
        except BrokerUnavailable as error:
            outage.report_down(str(error), monotonic_s())
            await asyncio.sleep(_RETRY_S)
            continue
        handle(records)
