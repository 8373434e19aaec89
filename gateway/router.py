"""From the inbox `chat.requests`, for producers that do not count tokens, to the buckets.

A record is committed after its copy in a bucket (or in the dead letters) is acknowledged: it may be forwarded twice,
never lost.
"""

import asyncio
import time
from dataclasses import dataclass, field

import msgspec

from gateway.lines import Lines
from shared import metrics
from shared.clock import wire_unix_ms
from shared.codec import msgpack_encode
from shared.deadletters import dead_letter, own_fault
from shared.errors import BrokerUnavailable, ProtocolError
from shared.faults import caught
from shared.kafka import GroupReader, Outage, Outgoing, Producer, Record
from shared.requests import Defaults, Order, open_request, request_headers, settle
from shared.tokenizer import Tokenizer
from shared.topics import BucketEdges, TopicNames, session_key

_READ_MS = 500
_MAX_RECORDS = 200
_RETRY_S = 0.2


@dataclass(slots=True, kw_only=True)
class Router:
    reader: GroupReader
    producer: Producer
    topics: TopicNames
    tokenizer: Tokenizer
    edges: BucketEdges
    defaults: Defaults
    max_input_tokens: int
    source: str
    _lines: Lines = field(default_factory=Lines)

    async def run(self) -> None:
        outage = Outage("kafka inbox")
        while True:
            try:
                records = await self.reader.read(timeout_ms=_READ_MS, max_records=_MAX_RECORDS)
                await self._forward_all(records)
            except BrokerUnavailable as error:
                outage.still(str(error), time.monotonic())
                await asyncio.sleep(_RETRY_S)

    async def _forward_all(self, records: list[Record]) -> None:
        """Forward until every record is acknowledged, then commit. Within a session they are
        queued in their order, however long each is counted."""
        waiting = records
        while waiting:
            done = await asyncio.gather(*(self._served(record) for record in waiting))
            waiting = [record for record, served in zip(waiting, done, strict=True) if not served]
            if waiting:
                await asyncio.sleep(_RETRY_S)
        ends: dict[tuple[str, int], int] = {}
        for record in records:
            ends[record.topic, record.partition] = record.offset + 1
        if not await self.reader.commit(ends):
            metrics.commits_failed.inc()

    async def _served(self, record: Record) -> bool:
        """Whether it is in a bucket or in the dead letters. Whatever is wrong with it, those after it are forwarded."""
        try:
            await self._forward(record)
        except BrokerUnavailable:
            return False
        except ProtocolError as error:
            await dead_letter(self.producer, self.topics, record, error)
        except Exception as error:  # noqa: BLE001 - counted and logged; this record is set aside
            caught("record", error, origin=f"{record.topic}/{record.partition}/{record.offset}")
            await dead_letter(self.producer, self.topics, record, own_fault(error))
        return True

    async def _forward(self, record: Record) -> None:
        """Raises `BrokerUnavailable`, `ProtocolError`."""
        request = open_request(record.value, record.headers, unreadable=record.unreadable)
        order = settle(request, self.defaults, wire_unix_ms())
        key = session_key(order.tenant, order.request.session_id)
        async with self._lines.turn(key):
            bucket = self.edges.bucket_of(await self._count(order.request.input))
            topic, headers = self.topics.requests(bucket), request_headers(order, source=self.source)
            copy = Outgoing(topic, msgpack_encode(_complete(order)), key=key, headers={**record.headers, **headers})
            delivery = await self.producer.enqueue(copy)
        await self.producer.delivered(topic, delivery)
        metrics.routed.labels(bucket).inc()

    async def _count(self, text: str) -> int:
        if self.edges.surely_short(text):
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
    """The request with its clock started: the deadline runs from the moment the inbox was read."""
    return msgspec.structs.replace(
        order.request,
        tenant=order.tenant,
        created_unix_ms=order.created_unix_ms,
        deadline_unix_ms=order.deadline.deadline_unix_ms,
        first_token_unix_ms=order.deadline.first_token_unix_ms,
        reply_topic=order.reply_topic,
    )
