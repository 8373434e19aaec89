"""Route requests from the inbox `chat.requests`, for producers that do not count tokens, to the buckets.

A record is committed after its copy in a bucket (or in the dead letters) is acknowledged: it may be forwarded twice,
never lost. One that ends the gateways that work on it is set aside after `MAX_DELIVERIES` deliveries.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from gateway.request.route import Route
from gateway.serving.routing import Routing
from gateway.session.keyed_locks import KeyedLocks
from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import GroupReader, Outgoing, Producer, Record, read_on
from shared.model.tokenizer import Tokenizer
from shared.process.clock import wire_unix_ms
from shared.records.commits import Commits
from shared.records.dead_letters import DeadLetters
from shared.records.offsets import OffsetTracker
from shared.records.processor import RecordProcessor
from shared.telemetry import metrics
from shared.telemetry.faults import caught
from shared.telemetry.logs import get_logger
from shared.wire.cloud_events import reply_headers
from shared.wire.codec import msgpack_encode
from shared.wire.messages import ChatRequest, ReplyDone
from shared.wire.requests import Defaults, Order, Target, request_headers, settle
from shared.wire.topics import TopicNames, bucket_of_length, surely_short

_READ_MS = 500
_MAX_RECORDS = 200
_MOST_OPEN = 1_000


@dataclass(slots=True, kw_only=True)
class Router:
    reader: GroupReader
    producer: Producer
    letters: DeadLetters
    topics: TopicNames
    routing: Routing
    tokenizer: Tokenizer
    defaults: Defaults
    max_input_tokens: int
    source: str
    offsets: OffsetTracker
    commits: Commits
    processor: RecordProcessor = field(init=False)
    _locks: KeyedLocks = field(default_factory=KeyedLocks)

    def __post_init__(self) -> None:
        self.processor = RecordProcessor(
            self.offsets, self.commits, self.letters, self.defaults, handle=self._forward, refuse=self._refuse
        )

    async def run(self) -> None:
        await read_on("kafka inbox", self._read, self.process)

    async def _read(self) -> list[Record]:
        await self.processor.tasks.room(_MOST_OPEN)
        return await self.reader.read(timeout_ms=_READ_MS, max_records=_MAX_RECORDS)

    def process(self, records: Iterable[Record]) -> None:
        """Forward each record by itself, and within a session in their order; but for what is under way here already,
        and is read again after a rebalance."""
        self.offsets.lose(self.reader.pop_lost())
        for record in records:
            if self.offsets.open(*record.origin):
                self.processor.start(record)

    async def finish(self, limit_s: float) -> None:
        """Forward what has been read, within a limit; what is cut off another gateway reads."""
        await self.processor.tasks.drain(limit_s)

    async def _refuse(self, asker: Target, end: ReplyDone) -> None:
        """Publish the end of a request that is refused. Raises `BrokerUnavailable`."""
        end = msgspec.structs.replace(end, origin="gateway")
        topic, partition = asker
        headers = {} if topic == self.topics.replies else reply_headers(end, source=self.source)
        reply = Outgoing(topic, msgpack_encode(end), key=end.session_id.encode(), partition=partition, headers=headers)
        try:
            await self.producer.publish(reply)
        except BrokerUnavailable:
            raise
        except ProtocolError as failure:  # nobody can be told there
            metrics.records_ignored.labels("reply").inc()
            get_logger().warning("reply_undeliverable", request_id=end.request_id, cause=str(failure))
        except Exception as fault:
            caught("answer", fault, request_id=end.request_id)
            raise BrokerUnavailable(f"{type(fault).__name__} in the producer") from fault

    async def _forward(self, request: ChatRequest, record: Record) -> None:
        """Forward a record to its bucket; then it is done. Raises `BrokerUnavailable`, `ProtocolError`."""
        order = settle(request, self.defaults, wire_unix_ms())
        key = order.session.record_key
        async with self._locks.hold(key):
            bucket = bucket_of_length(await self._count(order.request.input))
            taken = self.routing.choose(order.session, bucket, order.request.input)
            topic, headers = self.topics.requests(bucket, taken.lane), request_headers(order, source=self.source)
            value = msgpack_encode(_complete(order, taken))
            copy = Outgoing(topic, value, key=key, headers={**record.headers, **headers})
            delivery = await self.producer.enqueue(copy)
        await self.producer.delivered(topic, delivery)
        metrics.accepted.labels(bucket).inc()
        self.routing.count_request(taken)
        self.offsets.done(*record.origin)

    async def _count(self, text: str) -> int:
        if surely_short(text):
            return 0
        num_tokens = await asyncio.to_thread(self.tokenizer.count, text)
        if num_tokens > self.max_input_tokens:
            raise ProtocolError(
                "input_too_long",
                f"the input has {num_tokens} tokens, {self.max_input_tokens} are allowed",
                param="input",
            )
        return num_tokens


def _complete(order: Order, taken: Route) -> msgspec.Struct:
    """Return the request with its version named and its clock started: the deadline runs from the moment the inbox was
    read."""
    return msgspec.structs.replace(
        order.request,
        tenant=order.tenant,
        created_unix_ms=order.created_unix_ms,
        deadline_unix_ms=order.deadline.deadline_unix_ms,
        first_token_unix_ms=order.deadline.first_token_unix_ms,
        reply_topic=order.reply_topic,
        revision=taken.revision,
        epoch=taken.epoch,
    )
