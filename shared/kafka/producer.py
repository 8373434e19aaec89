"""Produce records with an idempotent producer, `acks=all` and no linger.

aiokafka has one produce request in flight for each broker and collects records for the next batch until it is answered:
a single record is sent immediately, a burst is batched.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Collection
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from aiokafka import AIOKafkaProducer
from aiokafka.admin.config_resource import ConfigResourceType
from aiokafka.errors import (
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from aiokafka.partitioner import murmur2
from aiokafka.protocol.admin import DescribeConfigsRequest

from shared.errors import BrokerUnavailable, ProtocolError, ReplylineError
from shared.kafka.broker.connection import has_connection, start_or_stop, until_connected
from shared.kafka.broker.options import connection_options
from shared.kafka.broker.records import Outgoing
from shared.kafka.broker.refusals import unauthorized
from shared.process.clock import monotonic_s
from shared.process.tasks import Tasks
from shared.settings.kafka import KafkaSettings
from shared.telemetry.faults import task_failed
from shared.telemetry.logs import get_logger
from shared.wire.topic_layout import PROMISED, TopicCopies, broken_promise

T = TypeVar("T")

REFUSALS: Final = (MessageSizeTooLargeError, RecordListTooLargeError, TopicAuthorizationFailedError)
"""Errors after which a retry is useless until someone changes the broker's settings."""


class DeliveryErrors:
    """Converts aiokafka's errors to Replyline's. Each producer has one."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._own_topics = settings.topics.all(request_partitions=1, reply_partitions=1).keys()
        self._logged: set[str] = set()

    def __call__(self, topic: str, error: BaseException) -> ReplylineError:
        """Return the error for a record that was not queued or not acknowledged.

        It is a `ProtocolError` if a retry cannot succeed, else a `BrokerUnavailable`.
        """
        match error:
            case ReplylineError():
                return error
            case TopicAuthorizationFailedError():
                return self._unauthorized(topic, error)
            case MessageSizeTooLargeError() | RecordListTooLargeError():
                return ProtocolError("record_too_large", f"{topic} does not accept a record of this size: {error}")
            case _:
                return BrokerUnavailable(f"cannot write to {topic}: {error!r}")

    def _unauthorized(self, topic: str, error: KafkaError) -> ReplylineError:
        """Return the error for a topic that this user may not write to.

        For one of Replyline's own topics it is retriable, because the operator is expected to allow it; for any other
        topic it is a `ProtocolError`.
        """
        cause = unauthorized(error, self._settings, "write to")
        if topic not in self._own_topics:
            return ProtocolError("topic_not_authorized", cause)
        if topic not in self._logged:
            self._logged.add(topic)
            get_logger().error("topic_not_authorized", topic=topic, cause=cause)
        return BrokerUnavailable(cause)


_MAX_RECORD_BYTES = 1_048_576
ACKNOWLEDGED_WITHIN_S: Final = 10.0
_RENEWED_AFTER_S: Final = 1.0
_POLL_S: Final = 0.02
_MARGIN_S: Final = 0.1
_ASKED: Final = ("min.insync.replicas", *PROMISED)


class Producer:
    """Idempotent producer. `start` waits for the broker without a time limit.

    aiokafka assigns a record its sequence number before it knows whether the record can be delivered (no leader in
    time, or the broker refuses it). The broker, which never received that number, then refuses every later record of
    the partition. Therefore a failed delivery replaces the producer with a new one that has a new id, at most once a
    second. A refused record does not count as a failed delivery: the next record of its partition fails, and that one
    counts.
    """

    def __init__(self, settings: KafkaSettings, *, client_id: str) -> None:
        self._settings = settings
        self._client_id = client_id
        self._producer: AIOKafkaProducer | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._renewed_s = float("-inf")
        self._closing = Tasks(task_failed)
        # calls of `send` that have not queued their record yet: they wait for metadata or for room in a batch
        self._sending: Counter[AIOKafkaProducer] = Counter()
        # aiokafka searches for a topic slightly longer than one request's timeout; after its `stop`, without end.
        self._queued_within_s = 2 * settings.request_timeout_ms / 1_000
        self.verdict = DeliveryErrors(settings)

    @property
    def connected(self) -> bool:
        """Return whether the broker was reached; an idle producer closes its connection, so that is not checked."""
        return self._producer is not None

    async def start(self) -> None:
        self._producer = await until_connected("kafka producer", partial(_connect, self._settings, self._client_id))

    async def num_partitions(self, topic: str) -> int:
        """Return the topic's current number of partitions, 0 if the topic does not exist.

        Raises:
            BrokerUnavailable: Kafka is not connected or does not answer.
        """
        if self._producer is None:
            raise BrokerUnavailable("Kafka is not connected yet")
        try:
            await self._producer.client.force_metadata_update()
            return len(await self._producer.partitions_for(topic))
        except UnknownTopicOrPartitionError:
            return 0
        except KafkaError as error:
            raise BrokerUnavailable(f"cannot read the number of partitions of {topic}: {error!r}") from error

    async def copies(self, topic: str, *, whole: bool = False) -> TopicCopies:
        """Return the topic's replication; with `whole`, also its retention and settings.

        Raises:
            BrokerUnavailable: Kafka is not connected, or the topic does not exist.
        """
        if not await self.num_partitions(topic) or (producer := self._producer) is None:
            raise BrokerUnavailable(f"there is no topic {topic}")
        cluster = producer.client.cluster
        partitions = cluster._partitions[topic].values()  # noqa: SLF001 - aiokafka has no public list of replicas
        replicas = min(len(partition.replicas) for partition in partitions)
        in_sync = min(len(partition.isr) for partition in partitions)
        config = await _asked(producer, topic) if replicas > 1 or whole else {_ASKED[0]: "1"}
        least, kept_ms = (int(config[name]) if name in config else None for name in (_ASKED[0], "retention.ms"))
        return TopicCopies(topic, len(cluster.brokers()), replicas, in_sync, least, kept_ms, config if whole else {})

    async def broken_promises(self, topics: Collection[str]) -> list[str]:
        """Return a line for each topic whose settings differ from what its readers need.

        Topics that do not exist or whose settings this user may not read are left out.
        """
        found = []
        for topic in topics:
            with suppress(BrokerUnavailable):
                copies = await self.copies(topic, whole=True)
                found.append(broken_promise(copies, self._settings.topics.config(topic)))
        return [line for line in found if line is not None]

    def partition_of(self, topic: str, key: bytes) -> int | None:
        """Return the partition of a record with that key; None while the number of partitions is unknown."""
        num_partitions = self.known_partitions(topic)
        return partition_of(key, num_partitions) if num_partitions else None

    def known_partitions(self, topic: str) -> int:
        """Return the topic's number of partitions in the newest metadata; 0 if the metadata does not have the topic.

        This reads aiokafka's private dict, since the public method builds a set at each call.
        """
        partitions = None if self._producer is None else self._producer.client.cluster._partitions.get(topic)  # noqa: SLF001
        return len(partitions) if partitions else 0

    async def enqueue(self, record: Outgoing) -> "asyncio.Future[object]":
        """Queue a record for the next batch, in order within its partition.

        Returns:
            A future that completes when the broker has acknowledged the record. `verdict` converts its exception to one
            of the
            errors below.

        Raises:
            BrokerUnavailable: the record cannot be queued in time.
            ProtocolError: it can never be queued (`unknown_topic`, `topic_not_authorized`, `record_too_large`).
        """
        producer = self._producer
        if producer is None:
            raise BrokerUnavailable("Kafka is not connected yet")
        self._sending[producer] += 1
        try:
            async with asyncio.timeout(self._queued_within_s):
                future = await _send(producer, record)
        except TimeoutError as error:
            raise BrokerUnavailable(f"Kafka did not return the metadata of {record.topic} in time") from error
        except (UnknownTopicOrPartitionError, AssertionError) as error:  # aiokafka asserts that the partition exists
            if not has_connection(producer):
                raise BrokerUnavailable(
                    f"Kafka is not connected, so it is unknown whether {record.topic} exists"
                ) from error
            raise ProtocolError("unknown_topic", f"no partition {record.partition} of {record.topic}") from error
        except KafkaError as error:
            raise self.verdict(record.topic, error) from error
        finally:
            self._sending[producer] -= 1
            if not self._sending[producer]:
                del self._sending[producer]
        future.add_done_callback(partial(self._delivered, producer, record.topic))
        return future

    def _delivered(self, producer: AIOKafkaProducer, topic: str, delivery: "asyncio.Future[object]") -> None:
        if delivery.cancelled() or (error := delivery.exception()) is None:
            return
        if isinstance(error, REFUSALS):
            self.verdict(topic, error)  # logs the error even if no caller awaits the acknowledgement
        elif producer is self._producer and (self._renewal is None or self._renewal.done()):
            if not has_connection(producer):
                self._producer = None  # fail new records immediately until the broker is back
            self._renewal = asyncio.create_task(self._renew(producer), name="renew the producer")

    async def _renew(self, broken: AIOKafkaProducer) -> None:
        """Replace the broken producer.

        Until the new one has started, the broken one continues to deliver other partitions' records, unless it has no
        connection.
        """
        try:
            await asyncio.sleep(self._renewed_s + _RENEWED_AFTER_S - monotonic_s())
            self._renewed_s = monotonic_s()
            await self.start()
        finally:
            if self._producer is not broken:  # else `stop` closes it
                self._closing.start(self._close(broken), "close the producer before")

    async def _close(self, producer: AIOKafkaProducer) -> None:
        """Send the queued records within one request's timeout, then fail the futures of the rest.

        Without the limit aiokafka would retry forever while no broker is there.
        """
        limit_s = self._settings.request_timeout_ms / 1_000
        await self._all_queued(producer)
        stopping = asyncio.create_task(producer.stop())
        done, _ = await asyncio.wait([stopping], timeout=limit_s)
        if not done:
            producer._sender.sender_task.cancel()  # noqa: SLF001 - `stop` continues when its sender task has ended
        await stopping
        _give_up(producer)

    async def _all_queued(self, producer: AIOKafkaProducer) -> None:
        """Wait until each `enqueue` of this producer has queued its record or failed."""
        until_s = monotonic_s() + self._queued_within_s + _MARGIN_S
        while producer in self._sending and monotonic_s() < until_s:  # noqa: ASYNC110 - rarely runs
            await asyncio.sleep(_POLL_S)

    async def delivered(self, topic: str, delivery: "asyncio.Future[Any]") -> tuple[int, int]:
        """Wait for the acknowledgement of a queued record; return its partition and offset.

        Raises:
            BrokerUnavailable: the delivery failed; a retry may succeed.
            ProtocolError: the broker refused the record.
        """
        try:
            written = await delivery
        except KafkaError as error:
            raise self.verdict(topic, error) from error
        return written.partition, written.offset

    async def publish(self, record: Outgoing) -> tuple[int, int]:
        """Produce a record and wait for its acknowledgement. Raises what `enqueue` and `delivered` raise."""
        return await self.delivered(record.topic, await self.enqueue(record))

    async def stop(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.gather(self._renewal, return_exceptions=True)
        producer, self._producer = self._producer, None
        if producer is not None:
            await self._close(producer)
        await self._closing.drain()


def partition_of(key: bytes, num_partitions: int) -> int:
    """Return the partition of a key, with the hash of Kafka's own producers."""
    positive: int = murmur2(key) & 0x7FFFFFFF
    return positive % num_partitions


async def acknowledged(publishing: Awaitable[T]) -> T:
    """Await a delivery for at most `ACKNOWLEDGED_WITHIN_S`, and return its result. The delivery continues after a
    timeout.

    A broker that hangs neither acknowledges nor refuses, so a waiting client needs this limit.

    Raises:
        BrokerUnavailable: there was no acknowledgement in time.
    """
    task = asyncio.ensure_future(publishing)
    # retrieve the exception of a delivery that fails after the timeout
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    done, _ = await asyncio.wait([task], timeout=ACKNOWLEDGED_WITHIN_S)
    if not done:
        raise BrokerUnavailable("Kafka did not acknowledge in time")
    return task.result()


async def _connect(settings: KafkaSettings, client_id: str) -> AIOKafkaProducer:
    producer = AIOKafkaProducer(
        **connection_options(settings),
        client_id=client_id,
        acks="all",
        enable_idempotence=True,
        linger_ms=0,
        compression_type=None if settings.compression == "none" else settings.compression,
        request_timeout_ms=settings.request_timeout_ms,
        max_request_size=_MAX_RECORD_BYTES,
        retry_backoff_ms=50,
    )
    await start_or_stop(producer, settings)
    return producer


async def _asked(producer: AIOKafkaProducer, topic: str) -> dict[str, str]:
    """Return the topic's settings that concern its replication and retention; empty if this user may not read them.

    Raises:
        BrokerUnavailable: Kafka does not answer.
    """
    asked = DescribeConfigsRequest([(ConfigResourceType.TOPIC.value, topic, list(_ASKED))])
    try:
        response = await producer.client.send(producer.client.get_random_node(), asked)
    except KafkaError as error:
        raise BrokerUnavailable(f"cannot read the settings of {topic}: {error!r}") from error
    (_, _, _, _, entries) = response.resources[0]
    return {name: value for name, value, *_ in entries}


async def _send(producer: AIOKafkaProducer, record: Outgoing) -> "asyncio.Future[object]":
    """Queue a record in the producer's next batch.

    aiokafka asserts that the partition exists, from metadata that may be five minutes old. After a failed assertion
    this refreshes the metadata and tries once more.
    """
    headers = list(record.headers.items())
    send = partial(producer.send, record.topic, record.value, record.key, record.partition, headers=headers)
    try:
        future: asyncio.Future[object] = await send()
    except AssertionError:
        if not await producer.client.force_metadata_update():
            raise BrokerUnavailable(f"cannot read the number of partitions of {record.topic}") from None
        future = await send()
    return future


def _give_up(producer: AIOKafkaProducer) -> None:
    """Fail the batches that a cancelled sender has left, as aiokafka fails expired ones.

    A cancelled sender does not complete its deliveries, and `fail_all` leaves out batches that were tried before.
    """
    accumulator = producer._message_accumulator  # noqa: SLF001 - there is no public name for this
    while accumulator._batches:  # noqa: SLF001
        accumulator._pop_batch(next(iter(accumulator._batches))).failure(RequestTimedOutError())  # noqa: SLF001
