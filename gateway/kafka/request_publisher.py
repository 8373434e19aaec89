"""Publish this gateway's records to Kafka: accepted requests, cancels, adoptions (requests to send a running answer
here as well), erasures of conversations, and the ends of answers that this gateway has ended itself."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from gateway.request.cursor import Place
from gateway.request.entry import Entry
from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import Outgoing, Producer, acknowledged
from shared.process.clock import monotonic_s, now_unix_ms
from shared.records.log_readers import erasure_records, forgotten_record
from shared.telemetry import metrics
from shared.telemetry.logs import get_logger
from shared.wire.cloud_events import request_headers
from shared.wire.codec import msgpack_encode
from shared.wire.fields import MAX_CONCURRENT
from shared.wire.messages import Adopt, Cancel, ChatRequest, Notice, ReplyDone
from shared.wire.session_key import SessionKey
from shared.wire.topic_layout import cancel_partition
from shared.wire.topics import TopicNames

log = get_logger()


@dataclass(slots=True, kw_only=True)
class RequestPublisher:
    """Publishes the gateway's records.

    Attributes:
        away: returns whether Kafka is known to be down; then nothing waits for it
        next_offset: returns the next offset of the gateway's own replies; None while they are not being read
    """

    producer: Producer
    topics: TopicNames
    reply_partition: int
    source: str
    away: Callable[[], bool]
    next_offset: Callable[[], int | None]

    def log_place(self) -> Place | None:
        """Return where in the reply log the replies to a request published now will begin."""
        offset = self.next_offset()
        return None if offset is None else Place(self.reply_partition, offset)

    def topic_of(self, entry: Entry) -> str:
        """Return the topic of a request."""
        to = entry.publication.destination
        return self.topics.requests(to.bucket, to.lane)

    async def enqueue(self, entry: Entry, now_unix_ms: float) -> "asyncio.Future[object]":
        """Queue a request for its topic, after the earlier ones. Wait for it with `await_delivery`. Raises
        `BrokerUnavailable`, `ProtocolError`."""
        if entry.request.trace is not None:
            entry.request.trace.sent_unix_ms = now_unix_ms
        self._check_there()
        topic, request = self.topic_of(entry), self.request(entry)
        key, partition = entry.request.session.record_key, entry.publication.destination.partition
        headers = request_headers(request, source=self.source)
        return await self.producer.enqueue(
            Outgoing(topic, msgpack_encode(request), key=key, partition=partition, headers=headers)
        )

    def request(self, entry: Entry) -> ChatRequest:
        """Return the record for the workers of a question that this gateway accepted."""
        asked, to = entry.request.asked, entry.publication.destination
        assert asked is not None, "another gateway accepted the request"
        asked_unix_ms, deadline = entry.request.asked_unix_ms, entry.deadline.later(entry.request.clock_ms)
        return asked.within(
            ChatRequest,
            id=entry.response_id,
            session_id=entry.request.session.session_id,
            tenant=entry.request.session.tenant,
            created_unix_ms=asked_unix_ms,
            generation=entry.request.generation,
            deadline_unix_ms=deadline.deadline_unix_ms,
            first_token_unix_ms=deadline.first_token_unix_ms,
            reply_topic=self.topics.replies,
            reply_partition=self.reply_partition,
            traceparent=entry.request.trace.traceparent if entry.request.trace is not None else asked.traceparent,
            consent=entry.request.consent,
            revision=to.revision,
            epoch=to.epoch,
            concurrent=to.claimed.concurrent[-MAX_CONCURRENT:],
            after=to.claimed.after,
        )

    async def await_delivery(self, entry: Entry, delivery: "asyncio.Future[object]") -> Place:
        """Return where in its topic a request was written, after Kafka's acknowledgement. Raises `BrokerUnavailable`,
        `ProtocolError`."""
        start = monotonic_s()
        written = await self.producer.delivered(self.topic_of(entry), delivery)
        metrics.kafka_time.labels("request").observe(monotonic_s() - start)
        if entry.request.trace is not None:
            entry.request.trace.acked_unix_ms = now_unix_ms()
        return Place(*written)

    async def cancel(self, entry: Entry) -> None:
        """Cancel a request for this gateway and for the one that it was adopted from. Other readers of the answer still
        get it."""
        created, log_partition = (
            entry.request.asked_unix_ms,
            entry.request.log.partition if entry.request.log is not None else None,
        )
        for partition in {self.reply_partition, log_partition} - {None}:
            await self._notify(
                entry, Cancel(request_id=entry.response_id, reply_partition=partition, created_unix_ms=created)
            )

    async def adopt(self, entry: Entry) -> None:
        """Make the worker that has the request send its replies to this gateway too."""
        adopt = Adopt(
            request_id=entry.response_id,
            reply_partition=self.reply_partition,
            created_unix_ms=entry.request.asked_unix_ms,
        )
        await self._notify(entry, adopt)

    async def _notify(self, entry: Entry, notice: Notice) -> None:
        topic, key = self.topics.cancels, entry.request.session.record_key
        try:
            self._check_there()
            partition = await self._notice_partition(entry)
            record = Outgoing(topic, msgpack_encode(notice), key=key, partition=partition)
            await acknowledged(self.producer.publish(record))
        except (BrokerUnavailable, ProtocolError) as error:  # the worker then stops at the deadline
            log.warning("notice_not_published", request_id=entry.response_id, cause=str(error))

    async def _notice_partition(self, entry: Entry) -> int | None:
        """Return the partition of the cancels topic that is read by the worker of the request; None if the hash of its
        key decides. Raises `BrokerUnavailable`."""
        topic, at = self.topics.cancels, entry.publication.partition
        num_partitions = self.producer.known_partitions(topic) or await self.producer.num_partitions(topic)
        if at is None or not num_partitions:
            return self.producer.partition_of(topic, entry.request.session.record_key)
        return cancel_partition(at, num_partitions)

    async def publish_end(self, entry: Entry) -> None:
        """Publish an end that this gateway decided to the log, for another gateway at which the client may resume. Does
        not wait for the acknowledgement."""
        response = entry.answer.response
        if entry.request.log is None or response is None:
            return
        done = response.within(
            ReplyDone,
            request_id=response.id,
            session_id=entry.request.session.session_id,
            attempt=max(entry.answer.attempt, 0),
            output_text="" if response.status == "cancelled" else response.output_text,  # it may have been erased
            origin="gateway",
        )
        key = entry.request.session.session_id.encode()
        record = Outgoing(self.topics.replies, msgpack_encode(done), key=key, partition=entry.request.log.partition)
        try:
            await self.producer.enqueue(record)
        # a client that resumes elsewhere gets an end at the deadline
        except (BrokerUnavailable, ProtocolError) as error:
            log.warning("end_not_logged", request_id=entry.response_id, cause=str(error))

    async def erase(self, session: SessionKey, generation: int) -> None:
        """Publish an erasure. Raises `BrokerUnavailable`, `ProtocolError`."""
        for record in erasure_records(self.topics, session, generation):
            self._check_there()
            await acknowledged(self.producer.publish(record))

    async def forget(self, session: SessionKey, unix_ms: int) -> None:
        """Publish that no copy of the conversation from before `unix_ms` may be kept. Raises `BrokerUnavailable`,
        `ProtocolError`."""
        self._check_there()
        await acknowledged(self.producer.publish(forgotten_record(self.topics, session, unix_ms)))

    def _check_there(self) -> None:
        """Raise `BrokerUnavailable` if Kafka is known to be down, so that nothing waits for it."""
        if self.away():
            raise BrokerUnavailable("Kafka is unavailable")
