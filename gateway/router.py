"""Route requests from the inbox `chat.requests`, for producers that do not count tokens, to the buckets.

A record is committed after its copy in a bucket (or in the dead letters) is acknowledged: it may be forwarded twice,
never lost. One that ends the gateways that work on it is set aside after the third.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from gateway.session.keyed_locks import KeyedLocks
from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import GroupReader, Outgoing, Producer, Record, read_on
from shared.model.tokenizer import Tokenizer
from shared.process.clock import wire_unix_ms
from shared.process.tasks import Tasks
from shared.records.commits import Commits
from shared.records.dead_letters import DeadLetters, origin_of, own_fault, poison
from shared.records.deliveries import MOST
from shared.records.offsets import OffsetTracker
from shared.telemetry import metrics
from shared.telemetry.faults import caught, contained, record_failed
from shared.telemetry.logs import get_logger
from shared.wire.codec import msgpack_encode
from shared.wire.failed_ends import detail_of, failed_end
from shared.wire.messages import ChatRequest
from shared.wire.requests import Defaults, Order, asker_of, open_request, request_headers, settle
from shared.wire.topics import TopicNames, bucket_of_length, surely_short

_READ_MS = 500
_MAX_RECORDS = 200
_MOST_OPEN = 1_000
_RETRY_S = 0.2


@dataclass(slots=True, kw_only=True)
class Router:
    reader: GroupReader
    producer: Producer
    letters: DeadLetters
    topics: TopicNames
    tokenizer: Tokenizer
    defaults: Defaults
    max_input_tokens: int
    source: str
    offsets: OffsetTracker
    commits: Commits
    _locks: KeyedLocks = field(default_factory=KeyedLocks)
    _open: Tasks = field(default_factory=lambda: Tasks(record_failed))

    async def run(self) -> None:
        await read_on("kafka inbox", self._read, self._take)

    async def _read(self) -> list[Record]:
        await self._open.room(_MOST_OPEN)
        return await self.reader.read(timeout_ms=_READ_MS, max_records=_MAX_RECORDS)

    def _take(self, records: list[Record]) -> None:
        self.offsets.lose(self.reader.take_lost())
        self._forward_all(records)

    def _forward_all(self, records: Iterable[Record]) -> None:
        """Each by itself, and within a session in their order; but for what is under way here already, and is read
        again after a rebalance."""
        for record in records:
            partition = (record.topic, record.partition)
            if self.offsets.begin(partition, record.offset):
                self.offsets.take(partition, record.offset)
                self._open.start(self._serve(record), origin_of(record))

    async def finish(self, limit_s: float) -> None:
        """Forward what has been read, within a limit; what is cut off another gateway reads."""
        await self._open.drain(limit_s)

    async def _serve(self, record: Record) -> None:
        """Serve a record until it is in a bucket or in the dead letters, or left to the gateway that has its partition
        by now."""
        partition = (record.topic, record.partition)
        try:
            number = await self.commits.begin(partition, record.offset)
        except Exception as error:  # noqa: BLE001 - counted and logged; this record is set aside
            await self._fail(record, error)
            self.offsets.done(partition, record.offset)
            return
        if number is None:
            return
        while not await self._served(record, number):  # noqa: ASYNC110 - nobody tells when Kafka is back
            await asyncio.sleep(_RETRY_S)
        self.offsets.done(partition, record.offset)

    async def _served(self, record: Record, number: int) -> bool:
        """Serve a record; return whether it is in a bucket or in the dead letters. Whatever is wrong with it, the
        others are forwarded."""
        request: ChatRequest | None = None
        try:
            if number <= MOST + 1:  # once more, to see whom to tell; if that ends a process too, never again
                request = open_request(record.value, record.headers, unreadable=record.unreadable)
            if request is None or number > MOST:
                await self._set_aside(record, poison(), request)
            else:
                await self._forward(request, record)
        except BrokerUnavailable:
            return False
        except ProtocolError as error:
            await self._set_aside(record, error, request)
        except Exception as error:  # noqa: BLE001 - counted and logged; this record is set aside
            await self._fail(record, error, request)
        return True

    async def _fail(self, record: Record, error: Exception, request: ChatRequest | None = None) -> None:
        """After a fault of our own. One that was not opened by then is opened to see whom to tell."""
        caught("record", error, origin=origin_of(record))
        if request is None:
            with contained("record", origin=origin_of(record)), suppress(ProtocolError):
                request = open_request(record.value, record.headers, unreadable=record.unreadable)
        await self._set_aside(record, own_fault(error), request)

    async def _set_aside(self, record: Record, error: ProtocolError, request: ChatRequest | None) -> None:
        """Set a record aside; return when whoever asked has been told, where it can be made out who that is, and the
        dead letter stands."""
        self.offsets.deliveries.survived((record.topic, record.partition), record.offset)
        telling = [] if request is None else [self._refuse(request, error)]
        await asyncio.gather(*telling, self.letters.put(record, error))

    async def _refuse(self, request: ChatRequest, error: ProtocolError) -> None:
        """Refuse a record. Raises nothing: who cannot be told has a dead letter all the same."""
        with contained("record", request_id=request.id):
            await self._tell(request, error)

    async def _tell(self, request: ChatRequest, error: ProtocolError) -> None:
        asker = asker_of(request, self.defaults)
        if asker is None:
            return
        attempt = int(wire_unix_ms())
        end = failed_end(request.id, request.session_id, detail_of(error), attempt=attempt, origin="gateway")
        reply = Outgoing(asker[0], msgpack_encode(end), key=end.session_id.encode(), partition=asker[1])
        while True:
            try:
                await self.producer.publish(reply)
            except BrokerUnavailable:
                await asyncio.sleep(_RETRY_S)
                continue
            except ProtocolError as failure:  # nobody can be told there
                metrics.records_ignored.labels("reply").inc()
                get_logger().warning("reply_undeliverable", request_id=request.id, cause=str(failure))
            except Exception as fault:  # noqa: BLE001 - counted and logged; an end is sent again
                caught("answer", fault, request_id=request.id)
                await asyncio.sleep(_RETRY_S)
                continue
            return

    async def _forward(self, request: ChatRequest, record: Record) -> None:
        """Forward a record to its bucket. Raises `BrokerUnavailable`, `ProtocolError`."""
        order = settle(request, self.defaults, wire_unix_ms())
        key = order.session.record_key
        async with self._locks.hold(key):
            bucket = bucket_of_length(await self._count(order.request.input))
            topic, headers = self.topics.requests(bucket), request_headers(order, source=self.source)
            copy = Outgoing(topic, msgpack_encode(_complete(order)), key=key, headers={**record.headers, **headers})
            delivery = await self.producer.enqueue(copy)
        await self.producer.delivered(topic, delivery)
        metrics.accepted.labels(bucket).inc()

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


def _complete(order: Order) -> msgspec.Struct:
    """Return the request with its clock started: the deadline runs from the moment the inbox was read."""
    return msgspec.structs.replace(
        order.request,
        tenant=order.tenant,
        created_unix_ms=order.created_unix_ms,
        deadline_unix_ms=order.deadline.deadline_unix_ms,
        first_token_unix_ms=order.deadline.first_token_unix_ms,
        reply_topic=order.reply_topic,
    )
