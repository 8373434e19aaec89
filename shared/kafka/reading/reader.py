"""Read partitions outside any group: all of a topic's from their end, or one from a given place."""

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
from shared.kafka.reading.unreadable import HandedOver
from shared.process.clock import monotonic_s
from shared.settings.kafka import KafkaSettings
from shared.telemetry.availability import Availability

_RETRY_S: Final = 0.2


class Reader:
    """A consumer that is started, read and stopped.

    Args:
        source: What it reads, for error messages.
        unhurried: Fetch less often: records arrive a little later and cost less.
    """

    def __init__(self, settings: KafkaSettings, *, client_id: str, source: str, unhurried: bool) -> None:
        self._settings = settings
        self._client_id = client_id
        self._source = source
        self._unhurried = unhurried
        self._consumer: AIOKafkaConsumer | None = None
        self._handed = HandedOver()

    @property
    def connected(self) -> bool:
        """Return whether the broker is there now."""
        return has_connection(self._consumer)

    async def stop(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await stop_consumer(consumer, limit_s=self._settings.request_timeout_ms / 1_000)

    @property
    def _started(self) -> AIOKafkaConsumer:
        assert self._consumer is not None, "used before start"
        return self._consumer

    def _options(self) -> dict[str, Any]:
        return consumer_options(self._settings, self._client_id, unhurried=self._unhurried)

    async def _read(
        self, *, timeout_ms: int, max_records: int | None, keys: Container[bytes | None] | None = None
    ) -> list[Record]:
        """Return the records that have arrived, or nothing after the timeout.

        Raises:
            BrokerRefuses: The broker's ACLs do not let this client read.
            BrokerUnavailable: The broker is away.
        """
        try:
            return await self._handed.read(
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


class PartitionReader(Reader):
    """Reads given partitions (when `None` all that the topic has at the start) from their end, outside any group."""

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
        """Wait for the broker, then for the partitions' ends: what is produced after this returns is read. With
        `since_unix_ms` all that was written from then on is."""
        self._consumer = await until_connected(f"kafka topic {self._topic}", partial(self._connect, since_unix_ms))

    async def _connect(self, since_unix_ms: int | None) -> AIOKafkaConsumer:
        # A consumer of a topic without a group is given all its partitions, once the broker has named them.
        consumer = fetch_by_sessions(AIOKafkaConsumer(self._topic, **self._options()))
        await start_or_stop(consumer, self._settings)
        try:
            assigned = self._assign(consumer)
            # Not `seek_to_end`: the consumer is on its way to the beginning, and whichever answer comes first counts.
            consumer.pause(*assigned)  # or the broker answers after each fetch's wait
            begins = await offsets_since(consumer, assigned, since_unix_ms)
            consumer.resume(*assigned)
            for partition, begin in begins.items():
                consumer.seek(partition, begin)
                self._handed.begin(partition, begin)
        except BaseException:
            await stop_consumer(consumer, limit_s=self._settings.request_timeout_ms / 1_000)
            raise
        return consumer

    def _assign(self, consumer: AIOKafkaConsumer) -> list[TopicPartition]:
        known = {partition.partition for partition in consumer.assignment()}
        wanted = set(self._partitions) if self._partitions is not None else known
        if not known or wanted - known:
            remedy = "replyline topics create"
            if known:  # that leaves what is there as it is
                remedy = more_partitions_command(self._settings, self._topic, max(wanted) + 1)
            raise UnknownTopicOrPartitionError(
                f"{self._topic} has partitions {sorted(known)}, wanted {sorted(wanted)}; run: {remedy}"
            )
        assigned = [TopicPartition(self._topic, number) for number in sorted(wanted)]
        # A subscription would begin them all anew, at their beginning, as soon as the topic has another partition.
        consumer.unsubscribe()
        consumer.assign(assigned)
        return assigned

    @property
    def num_partitions(self) -> int:
        """Return how many partitions the topic has, as far as this reader has heard."""
        return len(self._started.partitions_for_topic(self._topic) or ())

    async def follow(self, partitions: Collection[int], *, since_unix_ms: int) -> None:
        """Read these from now on: what was read before goes on, what is new begins with what was written then. Raises
        `BrokerUnavailable`; then all is as it was."""
        consumer = self._started
        wanted = {TopicPartition(self._topic, number) for number in partitions}
        before = consumer.assignment()
        if wanted == before:
            return
        try:
            async with asyncio.timeout(self._settings.request_timeout_ms / 1_000):
                begins = await offsets_since(consumer, sorted(wanted - before), since_unix_ms)
        except (KafkaError, TimeoutError) as error:
            raise BrokerUnavailable(f"cannot tell where {self._topic} stood a while ago: {error!r}") from error
        consumer.assign(sorted(wanted))
        for partition in before - wanted:
            self._handed.forget(partition)
        for partition, begin in begins.items():
            self._handed.begin(partition, begin)
        for partition in wanted:  # no await between: none is read before all are placed
            consumer.seek(partition, self._handed.next_offset(partition))

    async def read(self, *, timeout_ms: int = 500, max_records: int | None = None) -> list[Record]:
        """Return the records that have arrived, or nothing after the timeout."""
        if not self._started.assignment():
            await asyncio.sleep(timeout_ms / 1_000)
            return []
        return await self._read(timeout_ms=timeout_ms, max_records=max_records)

    def next_offset(self, partition: int) -> int | None:
        """Return the offset of the record to be read next; None before `start`."""
        return self._handed.next_offset(TopicPartition(self._topic, partition))


class LogReader(Reader):
    """Reads one partition from a given place, outside any group: `start`, then `seek`."""

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
        self._handed.begin(self._place, offset)

    async def end(self) -> int:
        """Return the offset that the next record to be written will have. Raises `BrokerUnavailable`."""
        try:
            ends = await self._started.end_offsets([self._place])
        except KafkaError as error:
            raise BrokerUnavailable(f"the end of {self._place} is not known: {error!r}") from error
        return int(ends[self._place])

    async def next_offset(self) -> int:
        """Return the offset of the record to be read next."""
        return int(await self._started.position(self._place))

    async def read(
        self, *, timeout_ms: int, max_records: int, keys: Container[bytes | None] | None = None
    ) -> list[Record]:
        """Read as `Reader._read` does; with `keys`, return only records that have one of these keys: skipping a record
        costs half of what returning it costs."""
        return await self._read(timeout_ms=timeout_ms, max_records=max_records, keys=keys)


async def read_on(
    what: str, read: Callable[[], Awaitable[list[Record]]], handle: Callable[[list[Record]], None]
) -> None:
    """Read and handle batch after batch, until cancelled. `what` names it in the log while it cannot be read."""
    outage = Availability(what)
    while True:
        try:
            records = await read()
        except BrokerUnavailable as error:
            outage.still(str(error), monotonic_s())
            await asyncio.sleep(_RETRY_S)
            continue
        handle(records)
