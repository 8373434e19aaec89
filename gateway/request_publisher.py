"""Accepted requests and cancels to Kafka."""

import time
from dataclasses import dataclass

from gateway.inflight import Entry
from shared import metrics
from shared.codec import msgpack_encode
from shared.kafka import Outgoing, Producer
from shared.messages import Cancel, ChatRequest, Erase, ResponseCreate
from shared.requests import Defaults, request_headers, settle
from shared.topics import TopicNames, session_key


@dataclass(slots=True, kw_only=True)
class RequestPublisher:
    producer: Producer
    topics: TopicNames
    defaults: Defaults
    reply_partition: int
    source: str

    async def publish(self, entry: Entry, asked: ResponseCreate) -> None:
        """Returns when Kafka has acknowledged the request. Raises `BrokerUnavailable`, `ProtocolError`."""
        request = ChatRequest(
            id=entry.response_id,
            session_id=entry.session_id,
            input=entry.input,
            tenant=entry.tenant,
            max_output_tokens=asked.max_output_tokens,
            temperature=asked.temperature,
            top_p=asked.top_p,
            seed=asked.seed,
            stop=asked.stop,
            created_unix_ms=int(entry.received_unix_ms),
            deadline_unix_ms=entry.deadline.deadline_unix_ms,
            first_token_unix_ms=entry.deadline.first_token_unix_ms,
            reply_topic=self.topics.replies,
            reply_partition=self.reply_partition,
            metadata=asked.metadata,
            traceparent=asked.traceparent,
        )
        order = settle(request, self.defaults, entry.received_unix_ms)
        start = time.perf_counter()
        await self.producer.publish(
            Outgoing(
                self.topics.requests(entry.bucket),
                msgpack_encode(request),
                key=session_key(entry.tenant, entry.session_id),
                headers=request_headers(order, source=self.source),
            )
        )
        metrics.publish.observe(time.perf_counter() - start)

    async def cancel(self, response_id: str) -> None:
        """Raises `BrokerUnavailable`, `ProtocolError`."""
        await self.producer.publish(Outgoing(self.topics.cancels, msgpack_encode(Cancel(request_id=response_id))))

    async def erase(self, tenant: str, session_id: str) -> None:
        """Have every worker forget a conversation. Raises `BrokerUnavailable`, `ProtocolError`."""
        erase = Erase(tenant=tenant, session_id=session_id)
        await self.producer.publish(Outgoing(self.topics.cancels, msgpack_encode(erase)))
