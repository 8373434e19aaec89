"""Forward a consumer group's records to other topics, in order within each session.

A record is committed after its copy (or its dead letter) is acknowledged: it may be forwarded twice, but is never lost.
A record that crashes the gateways is set aside after `MAX_DELIVERIES` deliveries.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import GroupReader, Outgoing, Producer, Record, read_on
from shared.process.keyed_locks import KeyedLocks
from shared.process.tasks import Tasks
from shared.records.commits import Commits
from shared.records.dead_letters import DeadLetters
from shared.records.offsets import OffsetTracker
from shared.records.processor import RecordProcessor, until_kafka_is_back
from shared.settings import Settings
from shared.telemetry import metrics
from shared.telemetry.faults import caught
from shared.telemetry.logs import get_logger
from shared.wire.cloud_events import reply_headers
from shared.wire.codec import msgpack_encode
from shared.wire.messages import ChatRequest, ReplyDone
from shared.wire.requests import Target
from shared.wire.session_key import SessionKey

_READ_MS = 500
_MAX_RECORDS = 200
_MOST_OPEN = 1_000


@dataclass(frozen=True, slots=True)
class Copy:
    """The record to publish instead of a request. `count` is called once Kafka has acknowledged it."""

    record: Outgoing
    count: Callable[[], None]


MakeCopy = Callable[[ChatRequest, Record], Awaitable[Copy]]
"""Return where a request goes, and as what. Raises `ProtocolError` for one that cannot go anywhere."""


class Forwarding:
    """Forwards the records of a group's topics, in two tasks of the process. `name` identifies the topics in the log
    while they cannot be read."""

    def __init__(
        self,
        settings: Settings,
        producer: Producer,
        source: str,
        *,
        name: str,
        topics: Sequence[str],
        group: str,
        copy: MakeCopy,
    ) -> None:
        kafka = settings.kafka
        self._name, self._finish_s = name, kafka.request_timeout_ms / 1_000
        self._producer, self._source, self._copy = producer, source, copy
        self._topics, self._defaults = kafka.topics, settings.request_defaults
        self._locks = KeyedLocks()
        self.reader = GroupReader(kafka, client_id=source, topics=topics, group=group, unhurried=True)
        self.offsets = OffsetTracker()
        self.commits = Commits(self.reader, self.offsets)
        self.processor = RecordProcessor(
            self.offsets,
            self.commits,
            DeadLetters(producer, kafka.topics, source),
            self._defaults,
            handle=self._forward,
            refuse=self._refuse,
        )

    async def start(self, tasks: Tasks) -> None:
        """Join the group and forward records until `leave` is called."""
        await self.reader.start(self.commits.part)
        tasks.start(read_on(f"kafka {self._name}", self._read, self.process), self._name)
        tasks.start(self.commits.run(), f"{self._name} commits")

    async def leave(self, tasks: Tasks) -> None:
        """Leave the group: finish the records in progress within a time limit and commit them. Other gateways read the
        rest."""
        await tasks.cancel(self._name)
        try:
            await self.processor.tasks.drain(self._finish_s)
            await tasks.cancel(f"{self._name} commits")
            await self.commits.part()
        finally:
            await self.reader.stop()

    async def _read(self) -> list[Record]:
        await self.processor.tasks.room(_MOST_OPEN)
        return await self.reader.read(timeout_ms=_READ_MS, max_records=_MAX_RECORDS)

    def process(self, records: Iterable[Record]) -> None:
        """Forward each record, except those that are in progress here and were read again after a rebalance."""
        self.offsets.lose(self.reader.pop_lost())
        self.offsets.pass_over(self.reader.pop_passed())
        for record in records:
            if self.offsets.open(*record.origin):
                self.processor.start(record)

    async def _refuse(self, asker: Target, end: ReplyDone) -> None:
        """Publish the end of a refused request. Raises `BrokerUnavailable`."""
        end = msgspec.structs.replace(end, origin="gateway")
        topic, partition = asker
        headers = {} if topic == self._topics.replies else reply_headers(end, source=self._source)
        reply = Outgoing(topic, msgpack_encode(end), key=end.session_id.encode(), partition=partition, headers=headers)
        try:
            await self._producer.publish(reply)
        except BrokerUnavailable:
            raise
        except ProtocolError as failure:  # the request's reply address cannot be published to
            metrics.records_ignored.labels("reply").inc()
            get_logger().warning("reply_undeliverable", request_id=end.request_id, cause=str(failure))
        except Exception as fault:
            caught("answer", fault, request_id=end.request_id)
            raise BrokerUnavailable(f"{type(fault).__name__} in the producer") from fault

    async def _forward(self, request: ChatRequest, record: Record) -> None:
        """Publish a copy of a record and mark the record as done, retrying for as long as Kafka cannot be reached.

        The records of one session are copied one at a time. Otherwise a later question could be published while the
        copy of an earlier one is still being retried.

        Raises:
            ProtocolError: the record can never be copied.
        """
        async with self._locks.hold(SessionKey(request.tenant or self._defaults.tenant, request.session_id)):
            await until_kafka_is_back(partial(self._deliver, request, record))
        self.offsets.done(*record.origin)

    async def _deliver(self, request: ChatRequest, record: Record) -> None:
        """Publish a record's copy and wait for its delivery. Raises `BrokerUnavailable`, `ProtocolError`."""
        copy = await self._copy(request, record)
        await self._producer.delivered(copy.record.topic, await self._producer.enqueue(copy.record))
        copy.count()
