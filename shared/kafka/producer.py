"""Produce records: idempotent, `acks=all`, no linger. aiokafka has one produce request in flight per broker and sends
what has gathered in that time as the next batch: a single record leaves immediately, a burst is batched."""

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
"""The broker's last word on a record, as long as nobody changes its settings."""


class Verdict:
    """One of each producer."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._own_topics = settings.topics.all(request_partitions=1, reply_partitions=1).keys()
        self._logged: set[str] = set()

    def __call__(self, topic: str, error: BaseException) -> ReplylineError:
        """Return the error of a record that was not queued or not acknowledged: `ProtocolError` where it never will be,
        else `BrokerUnavailable`."""
        match error:
            case ReplylineError():
                return error
            case TopicAuthorizationFailedError():
                return self._unauthorized(topic, error)
            case MessageSizeTooLargeError() | RecordListTooLargeError():
                return ProtocolError("record_too_large", f"{topic} takes no record of this size: {error}")
            case _:
                return BrokerUnavailable(f"cannot write to {topic}: {error!r}")

    def _unauthorized(self, topic: str, error: KafkaError) -> ReplylineError:
        """Return the error of a topic that this user may not write to. The operator is expected to allow one of our own
        topics, so its records are kept; a record for another topic is refused."""
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
    """Idempotent producer. `start` waits for the broker as long as it takes.

    aiokafka numbers a record even if it gives up on it (no leader in time, or the broker refuses it). The broker, which
    never saw that number, then refuses every later record of the partition. So after a failed delivery another
    producer with a new id takes over, at most once a second. A refusal alone is no failed delivery: the next record of
    that partition fails, and is one."""

    def __init__(self, settings: KafkaSettings, *, client_id: str) -> None:
        self._settings = settings
        self._client_id = client_id
        self._producer: AIOKafkaProducer | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._renewed_s = float("-inf")
        self._closing = Tasks(task_failed)
        self._sending: Counter[AIOKafkaProducer] = Counter()  # not queued yet: a topic is looked for, a batch is full
        # aiokafka looks for a topic little longer than a request may take; after its `stop`, for ever.
        self._queued_within_s = 2 * settings.request_timeout_ms / 1_000
        self.verdict = Verdict(settings)

    @property
    def connected(self) -> bool:
        """Return whether the broker has been there: an idle producer lets its connection go."""
        return self._producer is not None

    async def start(self) -> None:
        self._producer = await until_connected("kafka producer", partial(_connect, self._settings, self._client_id))

    async def num_partitions(self, topic: str) -> int:
        """Return how many partitions the topic has now, 0 without such a topic. Raises `BrokerUnavailable`."""
        if self._producer is None:
            raise BrokerUnavailable("Kafka is not connected yet")
        try:
            await self._producer.client.force_metadata_update()
            return len(await self._producer.partitions_for(topic))
        except UnknownTopicOrPartitionError:
            return 0
        except KafkaError as error:
            raise BrokerUnavailable(f"nobody tells how many partitions {topic} has: {error!r}") from error

    async def copies(self, topic: str, *, whole: bool = False) -> TopicCopies:
        """Return how often the topic's records are kept; `whole`: and for how long. Raises `BrokerUnavailable`."""
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
        """Return a line for each of these topics that is set otherwise than its readers need; what is not there, or may
        not be asked for, is left out."""
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
        """Return how many partitions the newest metadata has for the topic; 0 before the first. This reads aiokafka's
        own list, since its public method builds a set at each call."""
        partitions = None if self._producer is None else self._producer.client.cluster._partitions.get(topic)  # noqa: SLF001
        return len(partitions) if partitions else 0

    async def enqueue(self, record: Outgoing) -> "asyncio.Future[object]":
        """Put a record into the next batch, in order within its partition; the future is done when the broker has
        acknowledged it. Raises `BrokerUnavailable` if it cannot be queued in time, `ProtocolError` if it never can
        (`unknown_topic`, `topic_not_authorized`, `record_too_large`). `verdict` turns what the future raises into one
        of these."""
        producer = self._producer
        if producer is None:
            raise BrokerUnavailable("Kafka is not connected yet")
        self._sending[producer] += 1
        try:
            async with asyncio.timeout(self._queued_within_s):
                future = await _send(producer, record)
        except TimeoutError as error:
            raise BrokerUnavailable(f"nobody tells in time about {record.topic}") from error
        except (UnknownTopicOrPartitionError, AssertionError) as error:  # aiokafka asserts that the partition exists
            if not has_connection(producer):
                raise BrokerUnavailable(f"nobody tells whether {record.topic} exists") from error
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
            self.verdict(topic, error)  # logs it, where nobody waits for the acknowledgement
        elif producer is self._producer and (self._renewal is None or self._renewal.done()):
            if not has_connection(producer):
                self._producer = None  # fail new records immediately until the broker is back
            self._renewal = asyncio.create_task(self._renew(producer), name="renew the producer")

    async def _renew(self, broken: AIOKafkaProducer) -> None:
        """Make a new producer. Until it is there, other partitions' records are in good hands with the broken one, if
        it has a broker to speak to."""
        try:
            await asyncio.sleep(self._renewed_s + _RENEWED_AFTER_S - monotonic_s())
            self._renewed_s = monotonic_s()
            await self.start()
        finally:
            if self._producer is not broken:  # else `stop` closes it
                self._closing.start(self._close(broken), "close the producer before")

    async def _close(self, producer: AIOKafkaProducer) -> None:
        """Send what is queued, within a request's time: without a broker aiokafka would try for ever. Fail the futures
        of all that is not delivered by the end of that time."""
        limit_s = self._settings.request_timeout_ms / 1_000
        await self._all_queued(producer)
        stopping = asyncio.create_task(producer.stop())
        done, _ = await asyncio.wait([stopping], timeout=limit_s)
        if not done:
            producer._sender.sender_task.cancel()  # noqa: SLF001 - `stop` goes on when its sender has ended
        await stopping
        _give_up(producer)

    async def _all_queued(self, producer: AIOKafkaProducer) -> None:
        """Wait until each `enqueue` of this producer has found its topic or given up."""
        until_s = monotonic_s() + self._queued_within_s + _MARGIN_S
        while producer in self._sending and monotonic_s() < until_s:  # noqa: ASYNC110 - seldom asked
            await asyncio.sleep(_POLL_S)

    async def delivered(self, topic: str, delivery: "asyncio.Future[Any]") -> tuple[int, int]:
        """Wait for the acknowledgement of what was queued; the record's partition and offset. Raises
        `BrokerUnavailable`, `ProtocolError`."""
        try:
            written = await delivery
        except KafkaError as error:
            raise self.verdict(topic, error) from error
        return written.partition, written.offset

    async def publish(self, record: Outgoing) -> tuple[int, int]:
        """Produce and wait for the acknowledgement, as `enqueue` and `delivered` do."""
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
    """Return the partition that a key chooses, as Kafka's own producers choose it."""
    positive: int = murmur2(key) & 0x7FFFFFFF
    return positive % num_partitions


async def acknowledged(publishing: Awaitable[T]) -> T:
    """Return what is being published, for a client that waits. Raises `BrokerUnavailable` after
    `ACKNOWLEDGED_WITHIN_S`: a broker that hangs neither acknowledges nor refuses. The publishing continues."""
    task = asyncio.ensure_future(publishing)
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # it may come too late
    done, _ = await asyncio.wait([task], timeout=ACKNOWLEDGED_WITHIN_S)
    if not done:
        raise BrokerUnavailable("Kafka acknowledges nothing in time")
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
    """Return the settings of the topic's copies and what it promises; none where this user may not ask. Raises
    `BrokerUnavailable`."""
    asked = DescribeConfigsRequest([(ConfigResourceType.TOPIC.value, topic, list(_ASKED))])
    try:
        response = await producer.client.send(producer.client.get_random_node(), asked)
    except KafkaError as error:
        raise BrokerUnavailable(f"nobody tells how {topic} is kept: {error!r}") from error
    (_, _, _, _, entries) = response.resources[0]
    return {name: value for name, value, *_ in entries}


async def _send(producer: AIOKafkaProducer, record: Outgoing) -> "asyncio.Future[object]":
    """Put a record into the producer's next batch. aiokafka asserts that the partition exists by metadata that may be
    five minutes old: refresh the metadata before such an assertion is believed."""
    headers = list(record.headers.items())
    send = partial(producer.send, record.topic, record.value, record.key, record.partition, headers=headers)
    try:
        future: asyncio.Future[object] = await send()
    except AssertionError:
        if not await producer.client.force_metadata_update():
            raise BrokerUnavailable(f"nobody tells how many partitions {record.topic} has") from None
        future = await send()
    return future


def _give_up(producer: AIOKafkaProducer) -> None:
    """Fail what a cancelled sender has left behind, as aiokafka does with what expires. Its sender does not report its
    cancellation, so these deliveries would never be done, and `fail_all` cannot take what was tried before."""
    accumulator = producer._message_accumulator  # noqa: SLF001 - there is no public way to give up
    while accumulator._batches:  # noqa: SLF001
        accumulator._pop_batch(next(iter(accumulator._batches))).failure(RequestTimedOutError())  # noqa: SLF001
