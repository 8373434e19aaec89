"""From topics to jobs: reads ahead a bounded number of requests.

A record that cannot be decoded or served goes to the dead letters, with its reason, and the next one is served. One
whose deadline has passed by its headers alone is answered, or passed over, without being decoded: it takes no room.
"""

import asyncio
import time
from dataclasses import dataclass, field

from shared import metrics
from shared.clock import now_unix_ms
from shared.deadletters import dead_letter, own_fault
from shared.errors import BrokerUnavailable, ProtocolError
from shared.faults import caught
from shared.kafka import GroupReader, Outage, Producer, Record
from shared.logs import get_logger
from shared.messages import Bucket, Erase, ReplyDone
from shared.requests import Defaults, Order, open_request, settle
from shared.session_key import SessionKey
from shared.topics import BUCKETS, CE_SOURCE, TopicNames
from workers.job import Job, target_of
from workers.lookahead import Lookahead
from workers.offsets import OffsetTracker, Partition
from workers.prepare import Preparer
from workers.recent_cancels import RecentCancels
from workers.sequence import Phase
from workers.skew import SkewWatch, skew_ms
from workers.triage import Fate, Late, Triage, deadline_in
from workers.worker import Worker

_READ_MS = 200
_RETRY_S = 0.2
# While something is parked or not yet acknowledged, room may come at any moment.
_POLL_MS = 10
# One read holds the event loop for about 5 µs a record.
_READ_RECORDS = 1_000
_MAX_OPEN = 10_000

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
    cancelled: RecentCancels
    _buckets: dict[str, Bucket] = field(init=False)
    _lookahead: Lookahead[Record] = field(init=False)
    _triage: Triage = field(init=False)
    _clocks: SkewWatch = field(default_factory=SkewWatch)
    _preparing: dict[asyncio.Task[None], Bucket] = field(default_factory=dict)
    _begun: dict[Bucket, list[Job]] = field(init=False)

    def __post_init__(self) -> None:
        named = {self.topics.requests(bucket): bucket for bucket in BUCKETS}
        self._buckets = {topic: bucket for topic, bucket in named.items() if topic in self.reader.topics}
        self._lookahead = Lookahead(list(self._buckets.values()), max_waiting=self.worker.max_waiting)
        self._triage = Triage(self.topics.replies, self.defaults.reply_topics)
        self._begun = {bucket: [] for bucket in self._lookahead.buckets}

    async def run(self) -> None:
        outage = Outage("kafka requests")
        while True:
            self._begin_what_fits()
            self._rest()
            if self.offsets.num_open >= _MAX_OPEN:
                await asyncio.sleep(_POLL_MS / 1_000)
                continue
            try:
                timeout_ms = _POLL_MS if self._lookahead.num_parked else _READ_MS
                records = await self.reader.read(timeout_ms=timeout_ms, max_records=_READ_RECORDS)
            except BrokerUnavailable as error:
                outage.still(str(error), time.monotonic())
                await asyncio.sleep(_RETRY_S)
                continue
            self._forget_revoked()
            self._sort(records)
            if len(records) == _READ_RECORDS:
                await asyncio.sleep(0)  # a read of what has been fetched already lets nobody else in

    def _rest(self) -> None:
        """Back-pressure: the partitions of a bucket rest while enough of it is parked."""
        resting = self._lookahead.resting()
        self.reader.rest({topic for topic, bucket in self._buckets.items() if bucket in resting})
        metrics.partitions_paused.set(bool(resting))

    def _forget_revoked(self) -> None:
        """What a rebalance took is read again from what was committed, here or elsewhere."""
        revoked = set(self.reader.take_revoked())
        if revoked:
            self._lookahead.drop(lambda record: (record.topic, record.partition) in revoked)
        self.offsets.lose(self.reader.take_lost())

    # --- by the headers

    def _sort(self, records: list[Record]) -> None:
        """Pass over what is too late, and what was read before and is done or under way; park the rest."""
        now, skipped = now_unix_ms(), 0
        for record in records:
            fate = self._triage.fate(record.headers, record.key, now)
            partition = (record.topic, record.partition)
            if fate is Fate.SKIP:
                self.offsets.skip(partition, record.offset)
                skipped += 1
            elif not self.offsets.begin(partition, record.offset):
                continue
            elif isinstance(fate, Late):
                self._answer_unread(fate, (partition, record.offset))
            else:
                self._lookahead.park(self._buckets[record.topic], record)
            if fate is not Fate.OPEN:
                self._check_deadline(record, now)
        if skipped:
            metrics.skipped.inc(skipped)
            log.info("expired_skipped", records=skipped)

    def _answer_unread(self, late: Late, origin: tuple[Partition, int]) -> None:
        self.offsets.take(*origin)
        if self.worker.answer_unread((late.topic, late.partition), late.done, origin):
            metrics.served.labels(late.done.status, late.done.reason).inc()
            metrics.infer.labels(late.done.status).inc()
            metrics.outcomes.labels("missed").inc()

    def _check_deadline(self, record: Record, now: float) -> None:
        """One that was past when the broker took it in speaks against its producer's clock; a later one says nothing
        of when it was written."""
        deadline = deadline_in(record.headers)
        if deadline is not None and record.arrived_unix_ms is not None and deadline < record.arrived_unix_ms:
            self._check_clock(record, deadline, now)

    def _check_clock(self, record: Record, told_unix_ms: int, now: float) -> None:
        report = self._clocks.notice(
            skew_ms(told_unix_ms, now, record.arrived_unix_ms),
            now,
            arrived_unix_ms=record.arrived_unix_ms,
            source=record.headers.get(CE_SOURCE, b""),
        )
        if report is not None:
            metrics.clock_skewed.inc(report.records)
            log.warning(
                "clock_skew",
                records=report.records,
                widest_ms=round(report.widest_ms),
                source=record.headers.get(CE_SOURCE, b"").decode("utf-8", "replace"),
                action="deadlines are kept as docs/deadlines.md says; synchronise the clocks of producers and workers",
            )

    # --- those that are served

    def _begin_what_fits(self) -> None:
        if not self._lookahead.num_parked:
            return
        waiting = self._waiting()
        while (found := self._lookahead.next(waiting)) is not None:
            bucket, record = found
            origin = ((record.topic, record.partition), record.offset)
            fate = self._triage.fate(record.headers, record.key, now_unix_ms())
            if fate is Fate.SKIP:
                self.offsets.done(*origin)
            elif isinstance(fate, Late):
                self._answer_unread(fate, origin)
            else:
                self.offsets.take(*origin)
                waiting[bucket] += 1
                name = f"{record.topic}/{record.partition}/{record.offset}"
                task = asyncio.create_task(self._prepare(record, origin), name=name)
                self._preparing[task] = bucket
                task.add_done_callback(self._preparing.__delitem__)

    def _waiting(self) -> dict[Bucket, int]:
        """By bucket: requests being prepared, and those without a slot; the engine's thread gives them one."""
        waiting = dict.fromkeys(self._lookahead.buckets, 0)
        for bucket in self._preparing.values():
            waiting[bucket] += 1
        for bucket, jobs in self._begun.items():
            self._begun[bucket] = [job for job in jobs if job.sequence.phase is Phase.WAITING]
            waiting[bucket] += len(self._begun[bucket])
        return waiting

    async def _prepare(self, record: Record, origin: tuple[Partition, int]) -> None:
        """Make a job of a record. Whatever is wrong with it, the records after it are served and committed."""
        try:
            await self._accept(record, origin)
        except ProtocolError as error:
            await self._set_aside(record, origin, error)
        except Exception as error:  # noqa: BLE001 - counted and logged; this record is set aside
            caught("record", error, origin=f"{record.topic}/{record.partition}/{record.offset}")
            await self._set_aside(record, origin, own_fault(error))

    async def _set_aside(self, record: Record, origin: tuple[Partition, int], error: ProtocolError) -> None:
        await dead_letter(self.producer, self.topics, record, error)
        self.offsets.done(*origin)

    async def _accept(self, record: Record, origin: tuple[Partition, int]) -> None:
        """Raises `ProtocolError`."""
        request = open_request(record.value, record.headers, unreadable=record.unreadable)
        now = now_unix_ms()
        order = settle(request, self.defaults, now)
        if await self._repeated(order, origin):
            return
        job = await self.preparer.prepare(order, now)
        if request.created_unix_ms is not None:
            self._check_clock(record, request.created_unix_ms, now)
        if await self._repeated(order, origin):
            return
        if isinstance(job, ReplyDone):
            self.worker.answer_unread(target_of(order), job, origin)
            return
        bucket = self._buckets[record.topic]
        if bucket != job.bucket:
            metrics.wrong_bucket.inc()
        job.origins.append(origin)
        if not job.decided:
            self._begun[bucket].append(job)
        self.worker.accept(job, cancelled=self.cancelled.take(request, now_unix_ms()))

    def erase(self, erase: Erase) -> None:
        """A conversation was erased: nothing that this process holds of its earlier generations is used again."""
        self.worker.erase(SessionKey(erase.tenant, erase.session_id), erase.generation)
        self.preparer.prompts.forget()

    async def _repeated(self, order: Order, origin: tuple[Partition, int]) -> bool:
        """Whether it is answered together with the same request asked before. An answer that has nothing for it is let
        out first, within the time that this one has: without Kafka it does not leave. Raises `ProtocolError`."""
        while self.worker.leaving(order.request.id, origin):
            if order.deadline.expired(now_unix_ms(), started=False):
                break
            await asyncio.sleep(_POLL_MS / 1_000)
        return self.worker.repeated(order, origin)

    async def finish(self, limit_s: float) -> None:
        """Hand over what has been begun, within a limit: what cannot be served is put aside, and without a broker that
        would take for ever. What is parked or cut off is not committed: another worker reads it."""
        if self._preparing:
            _, pending = await asyncio.wait(self._preparing, timeout=limit_s)
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
