"""Route requests from the inbox `chat.requests`, for producers that do not count tokens, to the buckets."""

import asyncio
from dataclasses import dataclass

import msgspec

from gateway.forwarding.forwarding import Copy
from gateway.request.route import Route
from gateway.serving.placing import Placing
from gateway.serving.routing import Routing
from shared.errors import ProtocolError
from shared.kafka import Outgoing, Record
from shared.model.tokenizer import Tokenizer
from shared.process.clock import wire_unix_ms
from shared.telemetry import metrics
from shared.wire.codec import msgpack_encode
from shared.wire.messages import Bucket, ChatRequest
from shared.wire.requests import Defaults, Order, request_headers, settle
from shared.wire.topics import TopicNames, bucket_of_length, surely_short


@dataclass(slots=True, kw_only=True)
class Router:
    topics: TopicNames
    routing: Routing
    placing: Placing
    tokenizer: Tokenizer
    defaults: Defaults
    max_input_tokens: int
    source: str

    async def copy(self, request: ChatRequest, record: Record) -> Copy:
        """Return a request's copy for its bucket, in its lane. Raises `ProtocolError`."""
        order = settle(request, self.defaults, wire_unix_ms())
        bucket = bucket_of_length(await self._count(order.request.input))
        taken = self.routing.choose(order.session, bucket)
        headers = {**record.headers, **request_headers(order, source=self.source)}
        value = msgpack_encode(_complete(order, taken))
        topic = self.topics.requests(bucket, taken.lane)
        partition = await self.placing.follow(order, topic)
        copy = Outgoing(topic, value, key=order.session.record_key, partition=partition, headers=headers)
        return Copy(copy, lambda: self._count_routed(bucket, taken))

    def _count_routed(self, bucket: Bucket, taken: Route) -> None:
        metrics.accepted.labels(bucket).inc()
        self.routing.count_asked(taken.lane, bucket)
        self.routing.count_request(taken)

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
