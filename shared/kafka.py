"""Kafka as the rest of Replyline sees it: the only module that imports aiokafka.

Producing is idempotent with `acks=all` and no linger: aiokafka has one produce request in flight per broker and sends
what has gathered meanwhile as the next batch, so a lone record leaves at once and a burst is batched by itself.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import stamina
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import (
    CommitFailedError,
    IllegalStateError,
    KafkaError,
    MessageSizeTooLargeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from structlog.contextvars import bound_contextvars

from shared.errors import BrokerUnavailable, ProtocolError
from shared.logs import get_logger
from shared.settings import KafkaSettings

T = TypeVar("T")

_OUTAGE_POLL_S = 0.25
_UNHURRIED = 5
_MAX_RECORD_BYTES = 1_048_576


@dataclass(frozen=True, slots=True)
class Record:
    """A consumed record. Times travel in headers and values: the embedded broker's timestamps are not to be trusted."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to be produced."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    headers: Mapping[str, bytes] = field(default_factory=dict)


class Producer:
    """Idempotent producer. `start` waits for the broker as long as it takes.

    aiokafka numbers a record even when it gives it up (its time is over while the partition has no leader, or the
    broker refuses it); the broker, which never saw that number, then refuses every later record of the partition. So
    after a failed delivery another producer, with an id of its own, takes over.
    """

    def __init__(self, settings: KafkaSettings, *, client_id: str) -> None:
        self._settings = settings
        self._client_id = client_id
        self._producer: AIOKafkaProducer | None = None
        self._renewal: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        """Whether the broker has been there: an idle producer lets its connection go."""
        return self._producer is not None

    async def start(self) -> None:
        self._producer = await _until_connected("kafka producer", self._connect)

    async def _connect(self) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._settings.bootstrap_servers,
            client_id=self._client_id,
            acks="all",
            enable_idempotence=True,
            linger_ms=0,
            request_timeout_ms=self._settings.request_timeout_ms,
            max_request_size=_MAX_RECORD_BYTES,
            retry_backoff_ms=50,
        )
        await _start_or_stop(producer)
        return producer

    async def enqueue(self, record: Outgoing) -> "asyncio.Future[object]":
        """Put a record into the next batch; the future is done when the broker has acknowledged it.

        Order is kept within a partition. Raises `BrokerUnavailable` when it cannot be queued, `ProtocolError`
        where it never can: `unknown_topic` where the topic or partition does not exist, `record_too_large`.
        """
        if self._producer is None:
            raise BrokerUnavailable("Kafka is not connected yet")
        try:
            future: asyncio.Future[object] = await self._producer.send(
                record.topic,
                value=record.value,
                key=record.key,
                partition=record.partition,
                headers=list(record.headers.items()),
            )
        except (UnknownTopicOrPartitionError, AssertionError) as error:  # aiokafka asserts that the partition exists
            if not _has_connection(self._producer):
                raise BrokerUnavailable(f"nobody tells whether {record.topic} exists") from error
            raise ProtocolError("unknown_topic", f"no partition {record.partition} of {record.topic}") from error
        except MessageSizeTooLargeError as error:
            raise ProtocolError("record_too_large", f"{record.topic} takes no record of this size: {error}") from error
        except KafkaError as error:
            raise BrokerUnavailable(f"cannot produce to {record.topic}: {error!r}") from error
        future.add_done_callback(partial(self._delivered, self._producer))
        return future

    def _delivered(self, producer: AIOKafkaProducer | None, delivery: "asyncio.Future[object]") -> None:
        if delivery.cancelled() or delivery.exception() is None or producer is not self._producer or producer is None:
            return
        self._producer = None
        self._renewal = asyncio.create_task(self._renew(producer), name="renew the producer")

    async def _renew(self, broken: AIOKafkaProducer) -> None:
        try:
            await self.start()
        finally:
            await self._close(broken)

    async def _close(self, producer: AIOKafkaProducer) -> None:
        """Send what waits, within a request's time: without a broker aiokafka would try for ever."""
        stopping = asyncio.create_task(producer.stop())
        done, _ = await asyncio.wait([stopping], timeout=self._settings.request_timeout_ms / 1_000)
        if not done:
            producer._sender.sender_task.cancel()  # noqa: SLF001 - `stop` goes on when its sender has ended
        await stopping

    async def publish(self, record: Outgoing) -> None:
        """Produce and wait for the acknowledgement. Raises `BrokerUnavailable`, `ProtocolError`."""
        try:
            await (await self.enqueue(record))
        except MessageSizeTooLargeError as error:
            raise ProtocolError("record_too_large", f"{record.topic} takes no record of this size: {error}") from error
        except KafkaError as error:
            raise BrokerUnavailable(f"{record.topic} was not acknowledged: {error!r}") from error

    async def flush(self) -> None:
        if self._producer is not None:
            await self._producer.flush()

    async def stop(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.gather(self._renewal, return_exceptions=True)
        producer, self._producer = self._producer, None
        if producer is not None:
            await self._close(producer)


class PartitionReader:
    """Reads given partitions (all of a topic when none are named) from their end, outside any group."""

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        client_id: str,
        topic: str,
        partitions: Sequence[int] | None = None,
        unhurried: bool = False,
    ) -> None:
        """`unhurried`: what comes here may be read a little later than elsewhere, and costs less meanwhile."""
        self._unhurried = unhurried
        self._settings = settings
        self._client_id = client_id
        self._topic = topic
        self._partitions = partitions
        self._consumer: AIOKafkaConsumer | None = None

    @property
    def connected(self) -> bool:
        """Whether the broker is there now."""
        return _has_connection(self._consumer)

    async def start(self) -> None:
        """Wait for the broker, then for the partitions' ends: what is produced after this returns is read."""
        self._consumer = await _until_connected(f"kafka topic {self._topic}", self._connect)

    async def _connect(self) -> AIOKafkaConsumer:
        # A consumer of a topic without a group is given all its partitions, once the broker has named them.
        options = _consumer_options(self._settings, self._client_id, unhurried=self._unhurried)
        consumer = AIOKafkaConsumer(self._topic, **options)
        await _start_or_stop(consumer)
        try:
            assigned = self._assign(consumer)
            await consumer.seek_to_end(*assigned)
            for partition in assigned:
                await consumer.position(partition)
        except BaseException:
            await _stop_consumer(consumer, limit_s=self._settings.request_timeout_ms / 1_000)
            raise
        return consumer

    def _assign(self, consumer: AIOKafkaConsumer) -> list[TopicPartition]:
        known = {partition.partition for partition in consumer.assignment()}
        wanted = set(self._partitions) if self._partitions is not None else known
        if not wanted or wanted - known:
            raise UnknownTopicOrPartitionError(
                f"{self._topic} has partitions {sorted(known)}, wanted {sorted(wanted)}; run: replyline topics create"
            )
        assigned = [TopicPartition(self._topic, number) for number in sorted(wanted)]
        if self._partitions is not None:
            consumer.unsubscribe()
            consumer.assign(assigned)
        return assigned

    async def read(self, *, timeout_ms: int = 500, max_records: int | None = None) -> list[Record]:
        """What has arrived, or nothing after the timeout."""
        assert self._consumer is not None, "read before start"
        try:
            batches = await self._consumer.getmany(timeout_ms=timeout_ms, max_records=max_records)
        except KafkaError as error:
            raise BrokerUnavailable(f"cannot read {self._topic}: {error!r}") from error
        return _records(batches)

    async def stop(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await _stop_consumer(consumer, limit_s=self._settings.request_timeout_ms / 1_000)


class GroupReader:
    """Reads topics as a member of a consumer group; offsets are committed by hand."""

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
        self._unhurried = unhurried
        self._settings = settings
        self._client_id = client_id
        self._topics = topics
        self._group = group
        self._instance_id = instance_id
        self._consumer: AIOKafkaConsumer | None = None
        self._lost: list[tuple[str, int]] = []

    @property
    def connected(self) -> bool:
        """Whether the broker is there now."""
        return _has_connection(self._consumer)

    async def start(self) -> None:
        self._consumer = await _until_connected(f"kafka group {self._group}", self._connect)

    async def _connect(self) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            **_consumer_options(self._settings, self._client_id, unhurried=self._unhurried),
            group_id=self._group,
            group_instance_id=self._instance_id or None,
            session_timeout_ms=self._settings.session_timeout_ms,
            heartbeat_interval_ms=self._settings.session_timeout_ms // 4,
        )
        await _start_or_stop(consumer)
        consumer.subscribe(list(self._topics), listener=_Losses(self._lost))
        return consumer

    async def read(self, *, timeout_ms: int, max_records: int) -> list[Record]:
        assert self._consumer is not None, "read before start"
        try:
            batches = await self._consumer.getmany(timeout_ms=timeout_ms, max_records=max_records)
        except KafkaError as error:
            raise BrokerUnavailable(f"cannot read {', '.join(self._topics)}: {error!r}") from error
        return _records(batches)

    def take_lost(self) -> list[tuple[str, int]]:
        """Partitions that went to another member since the last call."""
        lost, self._lost[:] = list(self._lost), []
        return lost

    def pause(self) -> None:
        if self._consumer is not None:
            self._consumer.pause(*self._consumer.assignment())

    def resume(self) -> None:
        if self._consumer is not None:
            self._consumer.resume(*self._consumer.paused())

    async def commit(self, offsets: Mapping[tuple[str, int], int]) -> bool:
        """Commit the next offset to read of each partition; False where a rebalance took a partition away."""
        if self._consumer is None or not offsets:
            return True
        assigned = self._consumer.assignment()
        ours = {TopicPartition(*key): offset for key, offset in offsets.items() if TopicPartition(*key) in assigned}
        if not ours:
            return False
        try:
            await self._consumer.commit(ours)
        except (CommitFailedError, IllegalStateError):
            return False
        except KafkaError as error:
            raise BrokerUnavailable(f"cannot commit: {error!r}") from error
        return len(ours) == len(offsets)

    async def stop(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await _stop_consumer(consumer, limit_s=self._settings.request_timeout_ms / 1_000)


class _Losses(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    """Remembers which partitions were taken away; a partition given back is not lost."""

    def __init__(self, lost: list[tuple[str, int]]) -> None:
        self._lost = lost

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._lost.extend((partition.topic, partition.partition) for partition in revoked)

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        back = {(partition.topic, partition.partition) for partition in assigned}
        self._lost[:] = [lost for lost in self._lost if lost not in back]


async def create_topics(settings: KafkaSettings, topics: Mapping[str, int]) -> dict[str, str]:
    """Create what is missing; topic → "created" or "exists". Raises `BrokerUnavailable`."""
    admin = AIOKafkaAdminClient(
        bootstrap_servers=settings.bootstrap_servers, request_timeout_ms=settings.request_timeout_ms
    )
    outcome: dict[str, str] = {}
    try:
        await admin.start()
        for name, partitions in topics.items():
            new = NewTopic(name, num_partitions=partitions, replication_factor=settings.replication_factor)
            response = await admin.create_topics([new])
            code, message = response.topic_errors[0][1], response.topic_errors[0][2]
            if code not in (0, TopicAlreadyExistsError.errno):
                raise BrokerUnavailable(f"cannot create {name}: {message or f'error {code}'}")
            outcome[name] = "exists" if code else "created"
    except KafkaError as error:
        raise BrokerUnavailable(f"no Kafka at {settings.bootstrap_servers}: {error}") from error
    finally:
        await admin.close()
    return outcome


async def describe_topics(settings: KafkaSettings) -> dict[str, int]:
    """Topic → number of partitions, of every topic on the broker. Raises `BrokerUnavailable`."""
    admin = AIOKafkaAdminClient(
        bootstrap_servers=settings.bootstrap_servers, request_timeout_ms=settings.request_timeout_ms
    )
    try:
        await admin.start()
        return {row["topic"]: len(row["partitions"]) for row in await admin.describe_topics()}
    except KafkaError as error:
        raise BrokerUnavailable(f"no Kafka at {settings.bootstrap_servers}: {error}") from error
    finally:
        await admin.close()


def _consumer_options(settings: KafkaSettings, client_id: str, *, unhurried: bool) -> dict[str, object]:
    fetch_max_wait_ms = settings.fetch_max_wait_ms * (_UNHURRIED if unhurried else 1)
    return {
        "bootstrap_servers": settings.bootstrap_servers,
        "client_id": client_id,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "fetch_max_wait_ms": fetch_max_wait_ms,
        "request_timeout_ms": settings.request_timeout_ms + fetch_max_wait_ms,
        "retry_backoff_ms": 50,
        "check_crcs": False,
    }


async def report_outages(connected: Callable[[], bool]) -> None:
    """One line in the log when the broker goes, one when it is back."""
    was = connected()
    while True:
        await asyncio.sleep(_OUTAGE_POLL_S)
        now = connected()
        if was and not now:
            get_logger().warning("unavailable", what="kafka", action="retrying")
        elif now and not was:
            get_logger().info("available", what="kafka")
        was = now


def _has_connection(client: "AIOKafkaConsumer | AIOKafkaProducer | None") -> bool:
    """Whether it has a connection to a broker: a consumer fetches or sends heartbeats all the time. aiokafka has no
    public name for it."""
    if client is None:
        return False
    inner = client._client if isinstance(client, AIOKafkaConsumer) else client.client  # noqa: SLF001
    return any(connection.connected() for connection in inner._conns.values())  # noqa: SLF001


async def _until_connected(what: str, connect: Callable[[], Awaitable[T]]) -> T:
    """Try until it works; the log gets one line when it does not (`shared.logs`)."""
    with bound_contextvars(what=what):
        async for attempt in stamina.retry_context(
            on=(KafkaError, OSError), attempts=None, timeout=None, wait_initial=0.1, wait_max=2.0, wait_jitter=0.2
        ):
            with attempt:
                return await connect()
    raise AssertionError("retries without end came to an end")


def _records(batches: Mapping[TopicPartition, Sequence[object]]) -> list[Record]:
    return [
        Record(item.topic, item.partition, item.offset, item.key, item.value, dict(item.headers))  # type: ignore[attr-defined]
        for batch in batches.values()
        for item in batch
    ]


async def _stop_consumer(consumer: AIOKafkaConsumer, *, limit_s: float) -> None:
    """aiokafka's `stop` raises the cancellation of a fetch that was waiting to be tried again, and then leaves its
    connections open."""
    stopping = asyncio.create_task(consumer.stop())
    done, _ = await asyncio.wait([stopping], timeout=limit_s)
    stopping.cancel()
    if not done or stopping.cancelled() or stopping.exception() is not None:
        await consumer._client.close()  # noqa: SLF001


async def _start_or_stop(client: "AIOKafkaProducer | AIOKafkaConsumer") -> None:
    """A client that did not start still holds sockets: close them."""
    try:
        await client.start()
    except BaseException:
        await client.stop()
        raise
