"""Route requests from the inbox `chat.requests` to the topics of their buckets. Producers that do not count tokens use
it."""

from dataclasses import dataclass

import msgspec

from gateway.destination.choose import to_champion
from gateway.destination.claim import Claims
from gateway.destination.count import TokenCount
from gateway.destination.destination import Destination
from gateway.destination.gate import AdmissionGate
from gateway.forwarding.forwarding import Copy
from shared.kafka import Outgoing, Record
from shared.process.clock import wire_unix_ms
from shared.telemetry import metrics
from shared.wire.cloud_events import request_headers
from shared.wire.codec import msgpack_encode
from shared.wire.messages import ChatRequest
from shared.wire.requests import Defaults, Order, settle
from shared.wire.topics import TopicNames


@dataclass(slots=True, kw_only=True)
class Router:
    topics: TopicNames
    admission_gate: AdmissionGate
    claims: Claims
    token_count: TokenCount
    defaults: Defaults
    source: str

    async def copy(self, request: ChatRequest, record: Record) -> Copy:
        """Return a request's copy for its bucket in the champion's lane. Raises `ProtocolError`."""
        order = settle(request, self.defaults, wire_unix_ms(), arrived_unix_ms=record.arrived_unix_ms)
        bucket = await self.token_count.bucket_of(order.request.input)
        # Not to the canary: no gateway sees the answer, so it would be no evidence.
        to = to_champion(bucket, self.admission_gate.state)
        complete = _complete(order, to)
        headers = {**record.headers, **request_headers(complete, source=self.source)}
        value = msgpack_encode(complete)
        topic = self.topics.requests(to.bucket, to.lane)
        partition = await self.claims.follow(order, topic)
        copy = Outgoing(topic, value, key=order.session.record_key, partition=partition, headers=headers)
        return Copy(copy, lambda: self._count_routed(to))

    def _count_routed(self, to: Destination) -> None:
        metrics.accepted.labels(to.bucket).inc()
        self.admission_gate.report.count_asked(to)
        self.admission_gate.report.count_sent(to)


def _complete(order: Order, to: Destination) -> ChatRequest:
    """Return the request with its version and its deadline, which starts when it was read from the inbox."""
    return msgspec.structs.replace(
        order.request,
        tenant=order.tenant,
        created_unix_ms=order.created_unix_ms,
        deadline_unix_ms=order.deadline.deadline_unix_ms,
        first_token_unix_ms=order.deadline.first_token_unix_ms,
        reply_topic=order.reply_topic,
        revision=to.revision,
        epoch=to.epoch,
    )
