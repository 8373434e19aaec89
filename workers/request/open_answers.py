"""Send each answer to all gateways that wait for it, called its readers, from its acceptance to its end. When every
reader's copy of the end is acknowledged by Kafka, the request's record may be committed."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final, Protocol

from shared.errors import ProtocolError
from shared.process.clock import now_unix_ms
from shared.records.deliveries import Partition
from shared.records.offsets import OffsetTracker
from shared.telemetry.faults import contained
from shared.wire.failed_ends import OWN_FAULT, failed_end
from shared.wire.messages import Adopt, Cancel, ReplyDelta, ReplyDone
from shared.wire.requests import Order, Target
from shared.wire.session_key import SessionKey
from workers.request.job import Job, target_of
from workers.request.recent_answers import RecentAnswers


class Replies(Protocol):
    """Publishes replies; a shadow worker's implementation publishes nothing."""

    def delta(self, target: Target, delta: ReplyDelta) -> None:
        """Publish text."""

    def done(self, target: Target, done: ReplyDone, settled: Callable[[], None]) -> None:
        """Publish an end; call `settled` when it is finally handled."""

    def forget(self, target: Target, request_id: str) -> None:
        """Drop an answer's unsent text for a target that does not read it any more."""


class AnswerReaders:
    """Publishes a job's text and end to its readers.

    Args:
        publisher: publishes to one reader.
        replies: the gateways' own reply topic.
        settled: called when every reader has acknowledged a job's end.
    """

    def __init__(self, publisher: Replies, *, replies: str, settled: Callable[[Job], None]) -> None:
        self._publisher = publisher
        self._replies = replies
        self._settled = settled

    def add(self, job: Job, target: Target, created_unix_ms: int | None) -> None:
        """Add a reader and send it the text so far.

        A known gateway gets it again, since another process may serve its partition now; other known readers already
        have it.
        """
        known = target in job.targets
        job.targets[target] = created_unix_ms
        if known and target[0] != self._replies:
            return
        if (delta := job.answer.so_far()).delta:
            self._publisher.delta(target, delta)
        if job.done is not None:
            job.owed.add(target)
            self._publish_end(job, job.done, target)

    def remove(self, job: Job, cancel: Cancel) -> None:
        """Remove the readers that a cancel names; without its last reader a job is `withdrawn`.

        A cancel that is older than its reader's last request has no effect.
        """
        before = job.targets
        if not job.asked_again(cancel):
            job.withdrawn = job.remove_readers(cancel.reply_partition)
        for target in before.keys() - job.targets.keys():
            self._publisher.forget(target, job.id)

    def publish_delta(self, job: Job, delta: ReplyDelta) -> None:
        for target in job.targets:
            self._publisher.delta(target, delta)

    def publish_end(self, job: Job, done: ReplyDone, rest: ReplyDelta | None) -> None:
        """Publish the terminal event, preceded by the text that was not published yet."""
        job.done, job.owed = done, set(job.targets)
        for target in job.targets:
            if rest is not None:
                self._publisher.delta(target, rest)  # sent in one batch with the terminal event
            self._publish_end(job, done, target)

    def fail(self, job: Job) -> None:
        """Publish that a job failed, with the text written so far, after an internal fault in its end.

        If a reader gets two ends, it keeps the first.
        """
        session_id, answer = job.order.request.session_id, job.answer
        done = job.done or failed_end(job.id, session_id, OWN_FAULT, attempt=answer.attempt, text=answer.text)
        job.done, job.owed = done, set(job.targets)
        for target in job.targets:
            with contained("answer", request_id=job.id):
                self._publish_end(job, done, target)

    def _publish_end(self, job: Job, done: ReplyDone, target: Target) -> None:
        self._publisher.done(target, done, partial(self._acknowledged, job, target))

    def _acknowledged(self, job: Job, target: Target) -> None:
        if target not in job.owed:
            return
        job.owed.discard(target)
        if not job.owed:
            self._settled(job)


_POLL_S: Final = 0.05


class UnreadAnswers:
    """Ends of records that did not become jobs. `jobs` are the open jobs by request id; `num` ends are
    unacknowledged."""

    def __init__(self, publisher: Replies, offsets: OffsetTracker, jobs: Mapping[str, Job]) -> None:
        self._publisher, self._offsets, self._jobs = publisher, offsets, jobs
        self.num = 0

    def answer(self, target: Target, done: ReplyDone, origin: tuple[Partition, int]) -> bool:
        """Publish the terminal event of a record that did not become a job.

        Returns:
            False if the record did become a job and was read again; then that job's end counts.
        """
        job = self._jobs.get(done.request_id)
        if job is not None and origin in job.origins:
            return False
        self._end(target, done, partial(self._offsets.done, *origin))
        return True

    async def refuse(self, target: Target, done: ReplyDone) -> None:
        """Publish the end of a request that is not served, and return when it is acknowledged.

        While the same reader has another open request with its id, wait first: the reader would mistake this end for
        that one's.
        """
        while self._is_read(done.request_id, target):  # noqa: ASYNC110 - very rare
            await asyncio.sleep(_POLL_S)
        acknowledged = asyncio.Event()
        self._end(target, done, acknowledged.set)
        await acknowledged.wait()

    def _is_read(self, request_id: str, target: Target) -> bool:
        job = self._jobs.get(request_id)
        return job is not None and target in job.targets

    def _end(self, target: Target, done: ReplyDone, settle: Callable[[], None]) -> None:
        def settled() -> None:
            self.num -= 1
            settle()

        self._publisher.done(target, done, settled)
        self.num += 1


_ANOTHER: Final = "another request with this id is being answered; give each its own"


class OpenAnswers:
    """The open jobs, and the ends of records that did not become jobs. `replies` is the gateways' own reply topic."""

    def __init__(self, *, publisher: Replies, offsets: OffsetTracker, replies: str) -> None:
        self.readers = AnswerReaders(publisher, replies=replies, settled=self._settled)
        self._publisher = publisher
        self._offsets = offsets
        self._replies = replies
        self._jobs: dict[str, Job] = {}
        self._preparing: list[Order] = []
        self._recent = RecentAnswers()
        self.unread = UnreadAnswers(publisher, offsets, self._jobs)

    def add(self, job: Job) -> None:
        self._jobs[job.id] = job

    @property
    def jobs(self) -> list[Job]:
        return list(self._jobs.values())

    @property
    def partitions(self) -> set[Partition]:
        """Return the partitions of open requests, including partitions that this worker has lost since."""
        return {partition for job in self._jobs.values() for partition, _ in job.origins}

    def idle(self, *, only_ended: bool) -> bool:
        """Return whether every end is acknowledged.

        Args:
            only_ended: ignore answers that have not ended, because they never will.
        """
        return not self.unread.num and not any(job.done is not None or not only_ended for job in self._jobs.values())

    # --- questions of one conversation

    @contextmanager
    def preparing(self, order: Order) -> Iterator[None]:
        """Count a request as open while it becomes a job, starting before its history is read."""
        self._preparing.append(order)
        try:
            yield
        finally:
            self._preparing.remove(order)

    def others(self, job: Job) -> list[str]:
        """Return the ids of the conversation's other questions that have not ended here."""
        orders = [*self._preparing, *(each.order for each in self._jobs.values() if each.done is None)]
        return [each.request.id for each in orders if each.session == job.session and each.request.id != job.id]

    # --- repeated requests

    def repeated(self, order: Order, origin: tuple[Partition, int]) -> bool:
        """Return whether a request is being answered or was answered recently.

        If so, its record is done with that answer, and its reader gets the whole text.

        Raises:
            ProtocolError: its id belongs to another request that is being answered.
        """
        job = self._jobs.get(order.request.id)
        if job is not None:
            if not job.answers(order):
                raise ProtocolError("invalid_field", _ANOTHER, param="id")
            job.origins.append(origin)
            self.readers.add(job, target_of(order), order.request.created_unix_ms)
            return True
        done = self._recent.find(order, now_unix_ms())
        if done is not None:
            self.unread.answer(target_of(order), done, origin)
        return done is not None

    def is_ending(self, request_id: str, origin: tuple[Partition, int]) -> bool:
        """Return whether the answer with that id was cancelled, erased or ended without useful text, and is not
        acknowledged yet.

        False for a record of that answer that is read again, which gets its end.
        """
        job = self._jobs.get(request_id)
        return job is not None and job.leaving and origin not in job.origins

    def adopt(self, adopt: Adopt) -> None:
        """Publish an answer to the gateway to which its client has moved, beginning with the text so far.

        So that gateway need not read the log. Nothing is published for an answer that is not here, cancelled, erased,
        or another request's.
        """
        target, job = (self._replies, adopt.reply_partition), self._jobs.get(adopt.request_id)
        if job is None:
            done = self._recent.named(adopt.request_id, now_unix_ms())
            if done is not None:
                self._publisher.done(target, done, lambda: None)
        elif not job.leaving and adopt.created_unix_ms in job.targets.values():
            self.readers.add(job, target, adopt.created_unix_ms)
            if not job.answer.text:
                self._publisher.delta(target, job.answer.so_far())

    # --- cancels, erasures, ends

    def cancel(self, cancel: Cancel) -> Job | None:
        """Remove a reader from the cancelled answer.

        Returns:
            None if no answer is being written or it is about to end; then the cancel may mean a later request with the
            same id.
        """
        job = self._jobs.get(cancel.request_id)
        if job is None or job.done is not None or job.withdrawn:
            return None
        self.readers.remove(job, cancel)
        return job

    def release(self, job: Job) -> None:
        """Forget a job that this worker gives up; its records are not done."""
        del self._jobs[job.id]
        for target in job.targets:
            self._publisher.forget(target, job.id)

    def ends_here(self, origin: tuple[Partition, int]) -> bool:
        """Return whether a record's answer has text, has ended or was withdrawn, so that no other worker should
        begin it."""
        return any(
            job.decided or job.withdrawn or job.done is not None or bool(job.answer.text)
            for job in self._jobs.values()
            if origin in job.origins
        )

    def erase(self, session: SessionKey, generation: int) -> None:
        """Mark a conversation's answers of earlier generations as erased, and forget the recent ones."""
        for job in self._jobs.values():
            job.erased = job.erased or (job.session == session and job.order.generation < generation)
        self._recent.forget(session)

    def keep(self, job: Job, done: ReplyDone, now_unix_ms: float) -> None:
        """Keep an answer for a repeated request."""
        self._recent.add(job.order, done, now_unix_ms)

    def _settled(self, job: Job) -> None:
        """Forget a job whose end every reader has acknowledged; its records may be committed."""
        del self._jobs[job.id]
        for origin in job.origins:
            with contained("record", request_id=job.id):
                self._offsets.done(*origin)
