"""Publish answers to Kafka: one lane for each reply partition, with one round of produce requests in flight.

Text that an answer gets while a round is in flight is sent as one delta with the next round: nothing waits while the
broker is fast, records grow instead of queues while it is slow, and memory is bounded by the answers in flight. A lost
delta is not sent again, since the terminal event has the whole text; a terminal event is retried until acknowledged.

If two terminal events of a request wait for the same round, the first is sent, as readers keep the first.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from shared.errors import BrokerUnavailable, ProtocolError, ReplylineError
from shared.kafka import Outgoing, Producer
from shared.process.tasks import Tasks
from shared.telemetry import metrics
from shared.telemetry.faults import caught, contain_each, task_failed
from shared.telemetry.logs import get_logger
from shared.wire.cloud_events import reply_headers
from shared.wire.codec import msgpack_encode
from shared.wire.failed_ends import OWN_FAULT, failed_end
from shared.wire.messages import ReplyDelta, ReplyDone
from shared.wire.requests import Target

_RETRY_S = 0.2
_IDLE_S = 60.0

Settled = Callable[[], None]


@dataclass(slots=True)
class _RoundPart:
    """An answer's part of the next round. `settled` are called once its end is acknowledged."""

    delta: ReplyDelta | None = None
    done: ReplyDone | None = None
    settled: list[Settled] = field(default_factory=list)

    def end(self, done: ReplyDone, settled: Iterable[Settled]) -> None:
        self.done = self.done or done
        self.settled.extend(settled)


class _Lane:
    """The replies to one partition, in order."""

    def __init__(
        self, producer: Producer, target: Target, *, source: str | None, retire: Callable[[Target], None]
    ) -> None:
        """Create a lane. `source` names the worker for other services; None if the target is a gateway's."""
        self._retire = retire
        self._source = source
        self._next_seq: dict[str, int] = {}
        self._producer = producer
        self._target = target
        self._pending: dict[str, _RoundPart] = {}
        self._wake = asyncio.Event()
        self.idle = asyncio.Event()
        self.idle.set()

    def put_delta(self, delta: ReplyDelta) -> None:
        entry = self._entry(delta.request_id)
        entry.delta = delta if entry.delta is None else _joined(entry.delta, delta)

    def put_end(self, done: ReplyDone, settled: Settled) -> None:
        self._entry(done.request_id).end(done, [settled])

    def _entry(self, request_id: str) -> _RoundPart:
        """Return the answer's part of the next round, and wake the lane."""
        self.idle.clear()
        self._wake.set()
        return self._pending.setdefault(request_id, _RoundPart())

    def forget(self, request_id: str) -> None:
        """Drop an answer's text. A queued end is still sent, because its record is done only when the end is
        acknowledged."""
        self._next_seq.pop(request_id, None)
        entry = self._pending.get(request_id)
        if entry is not None:
            entry.delta = None

    async def run(self) -> None:
        """Publish until there was nothing to publish for a while."""
        while await self._woken():
            self._wake.clear()
            batch, self._pending = self._pending, {}
            failed = await self._round(batch)
            if failed:
                metrics.kafka_refused.labels("reply").inc(len(failed))
                await asyncio.sleep(_RETRY_S)
                for done, settled in failed:  # they are older than what was added in the meantime
                    later = self._entry(done.request_id)
                    later.done, later.settled = done, settled + later.settled
            elif not self._pending:
                self.idle.set()
        self._retire(self._target)

    async def _woken(self) -> bool:
        try:
            async with asyncio.timeout(_IDLE_S):
                await self._wake.wait()
        except TimeoutError:
            return bool(self._pending)
        return True

    async def _round(self, batch: dict[str, _RoundPart]) -> list[tuple[ReplyDone, list[Settled]]]:
        """Produce a round; return the terminal events that must be sent again, with their `settled`."""
        messages = [
            message
            for request_id, entry in batch.items()
            for message in (self._numbered(request_id, entry), entry.done)
            if message is not None
        ]
        with metrics.kafka_time.labels("reply").time():
            sent = [await self._enqueue(message) for message in messages]
            outcomes = await asyncio.gather(*sent, return_exceptions=True)
        failed: list[tuple[ReplyDone, list[Settled]]] = []
        for message, outcome in zip(messages, outcomes, strict=True):
            if not isinstance(message, ReplyDone):
                continue
            failure = self._producer.verdict(self._target[0], outcome) if isinstance(outcome, BaseException) else None
            if isinstance(failure, ProtocolError):  # that target cannot be written
                metrics.records_ignored.labels("reply").inc()
                get_logger().warning("reply_undeliverable", request_id=message.request_id, cause=str(failure))
            elif failure is not None:
                failed.append((message, batch[message.request_id].settled))
                continue
            self._settle(message, batch[message.request_id].settled)
        return failed

    def _settle(self, done: ReplyDone, settled: list[Settled]) -> None:
        """Settle an end, unless the same request has another end queued, which will settle both."""
        pending = self._pending.get(done.request_id)
        if pending is not None and pending.done is not None:
            pending.settled = settled + pending.settled
        else:
            contain_each("answer", *settled, request_id=done.request_id)

    def _numbered(self, request_id: str, entry: _RoundPart) -> ReplyDelta | None:
        """Return the entry's delta with its final `seq`; merged deltas count as one."""
        delta = entry.delta
        if delta is not None:
            delta = msgspec.structs.replace(delta, seq=self._next_seq.get(request_id, delta.seq))
            self._next_seq[request_id] = delta.seq + 1
        if entry.done is not None:
            self._next_seq.pop(request_id, None)
        return delta

    async def _enqueue(self, message: ReplyDelta | ReplyDone) -> asyncio.Future[object]:
        """Queue a message. An end that cannot be encoded, which is an internal fault, is replaced by a failed end."""
        try:
            record = self._record(message)
        except Exception as error:  # noqa: BLE001 - counted and logged; the round's other messages are sent
            caught("answer", error, request_id=message.request_id)
            if isinstance(message, ReplyDelta):
                return _refused(ProtocolError("internal", "a delta that cannot be encoded"))
            end = failed_end(message.request_id, message.session_id, OWN_FAULT, attempt=message.attempt)
            record = self._record(end)
        try:
            return await self._producer.enqueue(record)
        except (BrokerUnavailable, ProtocolError) as error:
            return _refused(error)
        except Exception as error:  # noqa: BLE001 - counted and logged; an end is sent again
            caught("answer", error, request_id=message.request_id)
            return _refused(BrokerUnavailable(f"{type(error).__name__} in the producer"))

    def _record(self, message: ReplyDelta | ReplyDone) -> Outgoing:
        topic, partition = self._target
        headers = {} if self._source is None else reply_headers(message, source=self._source)
        key = message.session_id.encode()
        return Outgoing(topic, msgpack_encode(message), key=key, partition=partition, headers=headers)


def _refused(error: ReplylineError) -> "asyncio.Future[object]":
    refused: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    refused.set_exception(error)
    return refused


def _joined(earlier: ReplyDelta, later: ReplyDelta) -> ReplyDelta:
    """Join two deltas of an answer. They may overlap, since a new reader gets the text from its beginning."""
    before = later.offset - earlier.offset
    if before < 0:
        return later
    if before > len(earlier.delta) or before + len(later.delta) <= len(earlier.delta):
        return earlier  # the terminal event fills a gap
    return msgspec.structs.replace(earlier, delta=earlier.delta[:before] + later.delta)


class ReplyPublisher:
    """Publishes answers, each to its target.

    An end's `settled` is called once Kafka has acknowledged everything about its request at its target, or the target
    cannot be written. Replies on topics other than the gateways' own are CloudEvents; for gateways the headers would be
    most of a delta's bytes.

    Args:
        producer: the Kafka producer.
        gateways: the gateways' own reply topic.
        source: the CloudEvent source.
    """

    def __init__(self, producer: Producer, *, gateways: str, source: str) -> None:
        self._producer = producer
        self._gateways = gateways
        self._source = source
        self._lanes: dict[Target, _Lane] = {}
        self._tasks = Tasks(self._lane_failed)
        self.failed = asyncio.Event()

    async def watch(self) -> None:
        """Wait until a lane fails because of an internal fault, then raise."""
        await self.failed.wait()
        raise AssertionError("a reply lane failed; its reason is in the log")

    def delta(self, target: Target, delta: ReplyDelta) -> None:
        self._lane(target).put_delta(delta)

    def done(self, target: Target, done: ReplyDone, settled: Settled) -> None:
        self._lane(target).put_end(done, settled)

    def forget(self, target: Target, request_id: str) -> None:
        """Drop an answer's text for a target that does not read it any more; no terminal event will follow.

        A reader that returns gets the text from its beginning.
        """
        lane = self._lanes.get(target)
        if lane is not None:
            lane.forget(request_id)

    async def flush(self) -> None:
        """Wait until every terminal event is acknowledged."""
        for lane in list(self._lanes.values()):
            await lane.idle.wait()

    async def stop(self) -> None:
        await self._tasks.cancel()

    def _lane(self, target: Target) -> _Lane:
        lane = self._lanes.get(target)
        if lane is None:
            source = None if target[0] == self._gateways else self._source
            lane = self._lanes[target] = _Lane(self._producer, target, source=source, retire=self._retire)
            self._tasks.start(lane.run(), f"replies to {target}")
        return lane

    def _retire(self, target: Target) -> None:
        del self._lanes[target]

    def _lane_failed(self, name: str, error: BaseException) -> None:
        """End the process, because nothing would be published to the failed lane's partition any more."""
        task_failed(name, error)
        self.failed.set()
