"""From topics to jobs: reads ahead a bounded number of requests, and cancels.

A record that cannot be decoded or served goes to the dead letters, with its reason, and the next one is served. One
whose deadline has passed by its header alone is answered without being decoded.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from shared import metrics
from shared.clock import now_unix_ms
from shared.codec import MSGPACK, decode_cancel, decode_request
from shared.deadletters import dead_letter
from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import GroupReader, PartitionReader, Producer, Record
from shared.logs import get_logger
from shared.messages import ReplyDone, Timings, Usage
from shared.requests import Defaults
from shared.topics import CE_ID, CONTENT_TYPE, DEADLINE, REPLY_PARTITION, REPLY_TOPIC, TopicNames, reply_topic_allowed
from workers.offsets import OffsetTracker, Partition
from workers.prepare import Preparer
from workers.reply_publisher import Target
from workers.worker import Worker

_READ_MS = 200
_RETRY_S = 0.2
_PAUSE_POLL_S = 0.01
_REMEMBERED_CANCELS = 10_000

log = get_logger()


@dataclass(slots=True, kw_only=True)
class Intake:
    """Fills the worker's look-ahead and no more."""

    reader: GroupReader
    producer: Producer
    topics: TopicNames
    preparer: Preparer
    defaults: Defaults
    offsets: OffsetTracker
    worker: Worker
    cancelled: "RecentIds"
    _preparing: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def run(self) -> None:
        while True:
            room = self.worker.room() - len(self._preparing)
            if room <= 0:
                await self._pause()
                continue
            try:
                records = await self.reader.read(timeout_ms=_READ_MS, max_records=room)
            except BrokerUnavailable as error:
                log.warning("unavailable", what="kafka", cause=str(error), action="retrying")
                await asyncio.sleep(_RETRY_S)
                continue
            self.offsets.lose(self.reader.take_lost())
            for record in records:
                self._take(record)

    async def _pause(self) -> None:
        """Back-pressure: the partitions rest until half the look-ahead is free again."""
        self.reader.pause()
        metrics.partitions_paused.set(1)
        while self.worker.room() - len(self._preparing) <= self.worker.max_waiting // 2:  # noqa: ASYNC110 - a thread makes room
            await asyncio.sleep(_PAUSE_POLL_S)
        self.reader.resume()
        metrics.partitions_paused.set(0)

    def _take(self, record: Record) -> None:
        origin = ((record.topic, record.partition), record.offset)
        self.offsets.begin(*origin)
        late = expired_reply(record, self.defaults, now_unix_ms())
        if late is not None:
            target, done = late
            self.worker.answer_unread(target, done, origin)
            return
        name = f"{record.topic}/{record.partition}/{record.offset}"
        task = asyncio.create_task(self._prepare(record, origin), name=name)
        self._preparing[name] = task
        task.add_done_callback(lambda _: self._preparing.pop(name, None))

    async def _prepare(self, record: Record, origin: tuple[Partition, int]) -> None:
        """Make a job of a record. Whatever is wrong with it, the records after it are served and committed."""
        try:
            await self._accept(record, origin)
        except ProtocolError as error:
            await self._set_aside(record, origin, error)
        except Exception as error:  # a fault of our own: counted, logged, and this one record set aside
            log.exception("intake_failed", origin=f"{record.topic}/{record.partition}/{record.offset}")
            await self._set_aside(record, origin, ProtocolError("internal", repr(error)))

    async def _set_aside(self, record: Record, origin: tuple[Partition, int], error: ProtocolError) -> None:
        await dead_letter(self.producer, self.topics, record, error)
        self.offsets.done(*origin)

    async def _accept(self, record: Record, origin: tuple[Partition, int]) -> None:
        """Raises `ProtocolError`."""
        content_type = record.headers.get(CONTENT_TYPE, MSGPACK.encode()).decode("ascii", "replace")
        request = decode_request(record.value, content_type)
        if self._delivered_again(request.id, origin):
            return
        job = await self.preparer.prepare(request, now_unix_ms())
        if self._delivered_again(request.id, origin):
            return
        if self.topics.bucket_of(record.topic) != job.bucket:
            metrics.wrong_bucket.inc()
        job.origins.append(origin)
        self.worker.accept(job)
        if self.cancelled.take(job.id):
            self.worker.cancel(job.id)

    def _delivered_again(self, request_id: str, origin: tuple[Partition, int]) -> bool:
        """Whether the request is being answered already; then this record is done when that is."""
        known = self.worker.find(request_id)
        if known is not None:
            known.origins.append(origin)
        return known is not None

    async def finish(self) -> None:
        """Hand over what has been read."""
        await asyncio.gather(*self._preparing.values(), return_exceptions=True)


def expired_reply(record: Record, defaults: Defaults, now: float) -> tuple[Target, ReplyDone] | None:
    """The terminal event of a record that is too late, by its headers alone; None where they do not say so."""
    headers = record.headers
    deadline, request_id = headers.get(DEADLINE, b""), headers.get(CE_ID, b"")
    if not deadline.isdigit() or int(deadline) > now or not request_id:
        return None
    topic = headers.get(REPLY_TOPIC, defaults.reply_topic.encode()).decode("utf-8", "replace")
    partition = headers.get(REPLY_PARTITION, b"")
    if not reply_topic_allowed(topic, defaults.reply_topics):
        return None
    done = ReplyDone(
        request_id=request_id.decode("utf-8", "replace"),
        session_id=(record.key or b"").decode("utf-8", "replace").partition("/")[2],
        attempt=int(now),
        status="incomplete",
        reason="deadline",
        source="model",
        output_text="",
        usage=Usage(),
        timings=Timings(),
    )
    return (topic, int(partition) if partition.isdigit() else None), done


class RecentIds:
    """The last ids seen: a cancel may come before its request."""

    def __init__(self, capacity: int = _REMEMBERED_CANCELS) -> None:
        self._capacity = capacity
        self._ids: OrderedDict[str, None] = OrderedDict()

    def add(self, request_id: str) -> None:
        self._ids[request_id] = None
        if len(self._ids) > self._capacity:
            self._ids.popitem(last=False)

    def take(self, request_id: str) -> bool:
        """Whether the id was seen; it is forgotten."""
        return self._ids.pop(request_id, 0) is None


async def read_cancels(reader: PartitionReader, cancel: Callable[[str], bool], cancelled: RecentIds) -> None:
    """Every worker reads all cancels: those of requests it does not have are remembered for a while."""
    while True:
        try:
            records = await reader.read()
        except BrokerUnavailable:
            await asyncio.sleep(_RETRY_S)
            continue
        for record in records:
            try:
                request_id = decode_cancel(record.value).request_id
            except ProtocolError:
                metrics.dead_letters.labels("bad_cancel").inc()
                continue
            if not cancel(request_id):
                cancelled.add(request_id)
