"""Turn records into jobs, and read a bounded number of requests ahead.

    read → triage by the headers → park → begin what fits → processor → decode, settle, prepare → worker

A record that cannot be decoded or served becomes a dead letter, and its reader gets an error if the record names one;
the next record is not affected. A record whose headers show that its deadline has passed is answered or skipped without
being decoded, and takes no room.
"""

import asyncio
from dataclasses import dataclass, field

from shared.errors import BrokerUnavailable
from shared.kafka import GroupReader, Record, read_on
from shared.process.clock import correction_ms, now_unix_ms, wire_unix_ms
from shared.records.commits import Commits
from shared.records.dead_letters import Letters
from shared.records.deliveries import Partition
from shared.records.offsets import OffsetTracker
from shared.records.processor import RecordProcessor
from shared.telemetry import metrics
from shared.telemetry.logs import get_logger
from shared.wire.messages import Bucket, ChatRequest, ReplyDone
from shared.wire.requests import Defaults, Order, settle
from shared.wire.topics import BUCKETS, CE_SOURCE, TopicNames
from workers.intake.lookahead import Lookahead, WaitingJobs
from workers.intake.passing_on import PassingOn
from workers.intake.sorting import Sorting
from workers.intake.triage import ANSWERED_MS, Late, Triage, TriageDecision
from workers.request.job import Job, target_of
from workers.request.open_answers import OpenAnswers
from workers.request.recent_answers import RecentCancels
from workers.serving.loaded_versions import LoadedVersions
from workers.serving.worker import Worker

_READ_MS = 200
# while records are parked or unacknowledged, room may become free at any moment
_POLL_MS = 10
# reading a record occupies the event loop for about 5 µs
_READ_RECORDS = 1_000
_MAX_OPEN = 10_000
_LAG_INTERVAL_S = 5.0
_TOLERATED_SKEW_MS = 1_000.0
_LOG_SKEW_EVERY_MS = 60_000.0

log = get_logger()


@dataclass(slots=True)
class ClockSkew:
    """Counts records from a producer whose clock is ahead, since no record can arrive before it was written. Logs one
    line a minute.
    """

    _logged_unix_ms: float = field(default=float("-inf"), init=False)

    def check(self, record: Record, created_unix_ms: int, now_unix_ms: float) -> None:
        """Check a record's creation time; `now_unix_ms` is in the wire's time."""
        ahead_ms = created_unix_ms - now_unix_ms
        if ahead_ms <= _TOLERATED_SKEW_MS:
            return
        metrics.odd_requests.labels("clock").inc()
        if abs(now_unix_ms - self._logged_unix_ms) < _LOG_SKEW_EVERY_MS:
            return
        self._logged_unix_ms = now_unix_ms
        log.warning(
            "clock_skew",
            ahead_ms=round(ahead_ms),
            source=record.headers.get(CE_SOURCE, b"").decode("utf-8", "replace"),
            action=(
                "deadlines are treated as described in docs/deadlines.md; synchronise the clocks of producers and "
                "workers"
            ),
        )


@dataclass(slots=True, kw_only=True)
class Intake:
    """Reads requests ahead. `answered_ms` is passed to `Triage`."""

    reader: GroupReader
    letters: Letters
    topics: TopicNames
    versions: LoadedVersions
    defaults: Defaults
    offsets: OffsetTracker
    commits: Commits
    worker: Worker
    answers: OpenAnswers
    cancelled: RecentCancels
    answered_ms: int = ANSWERED_MS
    passing: PassingOn | None = None
    _buckets: dict[str, Bucket] = field(init=False)
    _lookahead: Lookahead[Record] = field(init=False)
    _sorting: Sorting = field(init=False)
    _skew: ClockSkew = field(default_factory=ClockSkew, init=False)
    _processor: RecordProcessor = field(init=False)
    _begun: WaitingJobs = field(init=False)

    def __post_init__(self) -> None:
        named = {self.topics.bucket_of(topic): topic for topic in self.reader.topics}
        self._buckets = {named[bucket]: bucket for bucket in BUCKETS if bucket in named}
        self._lookahead = Lookahead(list(self._buckets.values()), max_waiting=self.worker.max_waiting)
        self._begun = WaitingJobs(self._lookahead.buckets)
        self._processor = RecordProcessor(
            self.offsets,
            self.commits,
            self.letters,
            self.defaults,
            handle=self._accept,
            refuse=self.answers.unread.refuse,
        )

        self._sorting = Sorting(
            triage=Triage(self.topics.replies, self.defaults.reply_topics, self.answered_ms),
            offsets=self.offsets,
            answers=self.answers,
            processor=self._processor,
            park=lambda record: self._lookahead.park(self._buckets[record.topic], record),
        )

    async def run(self) -> None:
        await read_on("kafka requests", self._read, self._handle)

    async def _read(self) -> list[Record]:
        await asyncio.sleep(0)  # a read of buffered records does not yield to the event loop
        self._begin_what_fits()
        self._rest()
        if self.offsets.num_open >= _MAX_OPEN:
            await asyncio.sleep(_POLL_MS / 1_000)
            return []
        timeout_ms = _POLL_MS if self._lookahead.num_parked else _READ_MS
        return await self.reader.read(timeout_ms=timeout_ms, max_records=_READ_RECORDS)

    def _handle(self, records: list[Record]) -> None:
        self._partitions_revoked()
        self._sorting.sort(records)

    def _rest(self) -> None:
        """Apply back-pressure: pause a bucket's partitions while enough of its requests are parked."""
        resting = self._lookahead.resting()
        self.reader.rest({topic for topic, bucket in self._buckets.items() if bucket in resting})
        metrics.partitions_paused.set(bool(resting))

    def _partitions_revoked(self) -> None:
        """Give up the partitions that a rebalance revoked.

        Their parked records are dropped: the next owner reads them again from the committed offset. A record whose
        delivery is not recorded yet does not begin (`Commits.await_delivery`). Answers under way continue to their end,
        but their offsets are no longer committed here.
        """
        revoked = set(self.reader.pop_revoked())
        if revoked:
            self._lookahead.drop(lambda record: record.origin[0] in revoked)
        self.offsets.lose(self.reader.pop_lost())
        self.offsets.pass_over(self.reader.pop_passed())

    # --- requests that have begun

    def close_lane(self, *, closed: bool) -> None:
        """While the lane is `closed`, forward the requests that have no text yet; else answer them here again."""
        passing = self.passing
        if passing is None or passing.closed == closed:
            return
        passing.closed = closed
        log.info("lane_closed" if closed else "lane_open", lane=passing.lane)
        if closed:
            self.worker.release_unseen()

    def begin_again(self, job: Job) -> None:
        """Begin the requests of a released job again."""
        for record in self.passing.records(job) if self.passing is not None else ():
            self._begin_one(record)

    def _begin_what_fits(self) -> None:
        if not self._lookahead.num_parked:
            return
        waiting = self._begun.waiting(self._buckets[record.topic] for record in self._processor.busy.values())
        while (found := self._lookahead.next(waiting)) is not None:
            bucket, record = found
            try:
                waiting[bucket] += self._begin_one(record)
            except Exception as error:  # noqa: BLE001 - counted and logged; this record is set aside
                self._processor.start(record, error)

    def _begin_one(self, record: Record) -> bool:
        """Begin a request; return whether it is served, since it may be too late."""
        fate = self._sorting.triage.classify(record.headers, record.key, wire_unix_ms())
        if fate is TriageDecision.SKIP:
            self.offsets.done(*record.origin)
        elif isinstance(fate, Late):
            self._sorting.answer_unread(fate, record.origin)
        else:
            if self.passing is not None:
                self.passing.hold(record)
            self._processor.start(record)
            return True
        return False

    async def _accept(self, request: ChatRequest, record: Record) -> None:
        """Turn a request into a job. Its record is done when the answer's end is acknowledged.

        Raises:
            ProtocolError: the request cannot be served.
        """
        origin = record.origin
        now, clock_ms = now_unix_ms(), correction_ms()
        order = settle(request, self.defaults, now + clock_ms, arrived_unix_ms=record.arrived_unix_ms)
        order = order.by_a_clock_behind(clock_ms)
        if await self._repeated(order, origin) or await self._passed_on(order, record):
            return
        # The champion's lane cannot forward requests: it answers, and the answer names the version that wrote it.
        served = self.versions.for_request(request.revision, request.epoch) or self.versions.serving
        with served.preparing(), self.answers.preparing(order):
            job = await served.prepare(order, now)
            if request.created_unix_ms is not None:
                self._skew.check(record, request.created_unix_ms, now + clock_ms)
            # Check for repetition last: while its lane was closed, the same request may have begun.
            if await self._passed_on(order, record) or await self._repeated(order, origin):
                return
            if isinstance(job, ReplyDone):
                self.answers.unread.answer(target_of(order), job, origin)
            else:
                self._hand_on(job, record)

    def _hand_on(self, job: Job, record: Record) -> None:
        bucket = self._buckets[record.topic]
        if bucket != job.bucket:
            metrics.odd_requests.labels("bucket").inc()
        job.origins.append(record.origin)
        if not job.decided:
            metrics.prompt_tokens.observe(len(job.sequence.prompt_ids))
            self._begun.add(bucket, job)
        self.worker.accept(job, cancelled=self.cancelled.pop(job.order.request, now_unix_ms()))

    async def _passed_on(self, order: Order, record: Record) -> bool:
        """Return whether a request was forwarded because its lane is closed or its version is not loaded.

        Raises:
            BrokerUnavailable, ProtocolError: the copy could not be written.
        """
        passing, request = self.passing, order.request
        return passing is not None and await passing.pass_on(
            order,
            record,
            cancelled=lambda: self.cancelled.knows(request),
            lacks=lambda: self.versions.for_request(request.revision, request.epoch) is None,
        )

    async def _repeated(self, order: Order, origin: tuple[Partition, int]) -> bool:
        """Return whether an earlier answer to the same request answers it.

        Before that, wait for the end of an earlier one that was cancelled or erased, up to the request's deadline.

        Raises:
            ProtocolError: its id belongs to another request that is being answered.
        """
        while self.answers.is_ending(order.request.id, origin):
            if order.deadline.expired(now_unix_ms(), started=False):
                break
            await asyncio.sleep(_POLL_MS / 1_000)
        return self.answers.repeated(order, origin)

    async def finish(self, limit_s: float | None) -> None:
        """Wait for the requests that have begun, up to a limit, since setting one aside takes forever without a broker.

        Records that are parked or unfinished are not committed; another worker reads them.
        """
        await self._processor.tasks.drain(limit_s)


async def watch_lag(reader: GroupReader, topics: TopicNames) -> None:
    """Measure this worker's consumer lag until cancelled. During an outage the last value remains."""
    named = ((topic, topics.bucket_of(topic)) for topic in reader.topics)
    buckets: dict[str, Bucket] = {topic: bucket for topic, bucket in named if bucket is not None}
    while True:
        try:
            for topic, records in (await reader.lag()).items():
                metrics.consumer_lag.labels(buckets[topic]).set(records)
        except BrokerUnavailable:
            pass
        await asyncio.sleep(_LAG_INTERVAL_S)
