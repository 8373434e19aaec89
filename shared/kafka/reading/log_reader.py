"""Reading one partition again from a place in it, and on; a read that fails is logged and tried again."""

import asyncio
from collections.abc import Awaitable, Callable, Container
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

from shared.errors import BrokerRefuses, BrokerUnavailable
from shared.kafka.broker.connection import start_or_stop, stop_consumer, until_connected
from shared.kafka.broker.options import consumer_options
from shared.kafka.broker.records import Record
from shared.kafka.broker.refusals import unauthorized
from shared.kafka.reading.unreadable import HandedOver
from shared.process.clock import monotonic_s
from shared.settings.kafka import KafkaSettings
from shared.telemetry.availability import Availability


class LogReader:
    """One partition, outside any group. `start`, then `seek`. Raises `BrokerUnavailable` where the broker is away,
    `BrokerRefuses` where its ACLs do not let us read. `unhurried`: as of a `PartitionReader`."""

    def __init__(
        self, settings: KafkaSettings, *, client_id: str, topic: str, partition: int, unhurried: bool = False
    ) -> None:
        self._unhurried = unhurried
        self._settings = settings
        self._client_id = client_id
        self._place = TopicPartition(topic, partition)
        self._consumer: AIOKafkaConsumer | None = None
        self._handed = HandedOver()

    async def start(self) -> None:
        """Wait for the broker."""
        self._consumer = await until_connected(f"kafka log {self._place.topic}", self._connect)

    async def _connect(self) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(**consumer_options(self._settings, self._client_id, unhurried=self._unhurried))
        await start_or_stop(consumer, self._settings)
        consumer.assign([self._place])
        return consumer

    def seek(self, offset: int) -> None:
        self._started.seek(self._place, offset)
        self._handed.begin(self._place, offset)

    async def end(self) -> int:
        """Return the offset that the next record to be written will have."""
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
        """Return the records that have arrived, or nothing after the timeout; with `keys` only what bears one of them:
        to pass over a record costs half of what it takes to hand it out."""
        try:
            return await self._handed.read(
                self._started,
                timeout_ms=timeout_ms,
                max_records=max_records,
                limit_ms=self._settings.request_timeout_ms,
                keys=keys,
            )
        except TopicAuthorizationFailedError as error:
            raise BrokerRefuses(unauthorized(error, self._settings, "read")) from error
        except KafkaError as error:
            raise BrokerUnavailable(f"cannot read {self._place}: {error!r}") from error

    async def stop(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await stop_consumer(consumer, limit_s=self._settings.request_timeout_ms / 1_000)

    @property
    def _started(self) -> AIOKafkaConsumer:
        assert self._consumer is not None, "used before start"
        return self._consumer


_RETRY_S: Final = 0.2


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
