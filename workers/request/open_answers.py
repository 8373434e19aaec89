"""The answers that somebody is still owed: who reads each, and which records are done once its end is acknowledged."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

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
from workers.request.reply_publisher import ReplyPublisher

_ANOTHER: Final = "another request with this id is being answered; give each its own"


class OpenAnswers:
    """The jobs from their acceptance until their terminal events are acknowledged, and the ends of records that never
    became one. `replies` is the gateways' own topic."""

    def __init__(self, *, publisher: ReplyPublisher, offsets: OffsetTracker, replies: str) -> None:
        self._publisher = publisher
        self._offsets = offsets
        self._replies = replies
        self._jobs: dict[str, Job] = {}
        self._recent = RecentAnswers()
        self._num_unread = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job: Job) -> None:
        self._jobs[job.id] = job

    @property
    def jobs(self) -> list[Job]:
        return list(self._jobs.values())

    @property
    def partitions(self) -> set[Partition]:
        """Return the partitions of the requests that are being answered: one that has gone to another worker since is
        among them."""
        return {partition for job in self._jobs.values() for partition, _ in job.origins}

    def idle(self, *, only_ended: bool) -> bool:
        """Return whether nobody is owed anything. `only_ended`: no more answers are to be expected."""
        return not self._num_unread and not any(job.done is not None or not only_ended for job in self._jobs.values())

    # --- records that never become a job

    def answer_unread(self, target: Target, done: ReplyDone, origin: tuple[Partition, int]) -> bool:
        """Publish the terminal event of a record that never became a job; one that did, and is read again, has its own:
        then False."""
        job = self._jobs.get(done.request_id)
        if job is not None and origin in job.origins:
            return False
        self._end_unread(target, done, partial(self._offsets.done, *origin))
        return True

    async def refuse(self, target: Target, done: ReplyDone) -> None:
        """Publish the end of a request that is not served; return when it is acknowledged. Nobody is told where another
        request under its id is being answered: a reader would take the end for that one's."""
        if done.request_id not in self._jobs:
            acknowledged = asyncio.Event()
            self._end_unread(target, done, acknowledged.set)
            await acknowledged.wait()

    def _end_unread(self, target: Target, done: ReplyDone, settle: Callable[[], None]) -> None:
        def settled() -> None:
            self._num_unread -= 1
            settle()

        self._publisher.done(target, done, settled)
        self._num_unread += 1

    # --- whoever asks for an answer that is being written, or was lately

    def repeated(self, order: Order, origin: tuple[Partition, int]) -> bool:
        """Return whether a request is being answered already, or was lately: then it is not computed again. Its record
        is done when that answer is; who asked for it this time gets all of it. Raises `ProtocolError` where another
        request under its id is being answered."""
        job = self._jobs.get(order.request.id)
        if job is not None:
            if not job.answers(order):
                raise ProtocolError("invalid_field", _ANOTHER, param="id")
            job.origins.append(origin)
            self._add_reader(job, target_of(order), order.request.created_unix_ms)
            return True
        done = self._recent.find(order, now_unix_ms())
        if done is not None:
            self.answer_unread(target_of(order), done, origin)
        return done is not None

    def leaving(self, request_id: str, origin: tuple[Partition, int]) -> bool:
        """Return whether the answer under that id was cancelled or erased, or has ended with nothing worth telling, and
        its end is not acknowledged yet. One of its own records that is read again has that end all the same."""
        job = self._jobs.get(request_id)
        return job is not None and job.leaving and origin not in job.origins

    def adopt(self, adopt: Adopt) -> None:
        """Tell an answer where its client is now: what there is of it at once, be it nothing, so that its gateway need
        not read it from the log. What is not here, or is for nobody who comes now, that gateway hears nothing of."""
        target, job = (self._replies, adopt.reply_partition), self._jobs.get(adopt.request_id)
        if job is None:
            done = self._recent.named(adopt.request_id, now_unix_ms())
            if done is not None:
                self._publisher.done(target, done, lambda: None)
        elif not job.leaving and adopt.created_unix_ms in job.targets.values():
            self._add_reader(job, target, adopt.created_unix_ms)
            if not job.answer.text:
                self._publisher.delta(target, job.answer.so_far())

    def _add_reader(self, job: Job, target: Target, created_unix_ms: int | None) -> None:
        """Add one more who waits for an answer; or a gateway that waits again: it may be another process than before,
        and have nothing of it. Others' readers keep what they were told."""
        known = target in job.targets
        job.targets[target] = created_unix_ms
        if known and target[0] != self._replies:
            return
        if (delta := job.answer.so_far()).delta:
            self._publisher.delta(target, delta)
        if job.done is not None:
            job.owed.add(target)
            self._publish_done(job, job.done, target)

    # --- whoever wants an answer no more

    def cancel(self, cancel: Cancel) -> Job | None:
        """Take a reader from the answer that is cancelled; without its last reader it is `withdrawn`. Return None where
        none is being written, or it is about to end: the cancel may mean the same request asked again. A cancel that is
        older than the last request of its own asker takes no reader away."""
        job = self._jobs.get(cancel.request_id)
        if job is None or job.done is not None or job.withdrawn:
            return None
        before = job.targets
        if not job.asked_again(cancel):
            job.withdrawn = job.let_go(cancel.reply_partition)
        for target in before.keys() - job.targets.keys():
            self._publisher.forget(target, job.id)
        return job

    def erase(self, session: SessionKey, generation: int) -> None:
        """Mark a conversation's answers of earlier generations as erased, and forget those of late."""
        for job in self._jobs.values():
            job.erased = job.erased or (job.session == session and job.order.generation < generation)
        self._recent.forget(session)

    # --- an answer as it is written, and its end

    def publish_delta(self, job: Job, delta: ReplyDelta) -> None:
        for target in job.targets:
            self._publisher.delta(target, delta)

    def publish_end(self, job: Job, done: ReplyDone, rest: ReplyDelta | None) -> None:
        """Publish the terminal event to every reader, and the text before it that has not been published yet."""
        job.done, job.owed = done, set(job.targets)
        for target in job.targets:
            if rest is not None:
                self._publisher.delta(target, rest)  # leaves in one batch with the terminal event
            self._publish_done(job, done, target)

    def fail(self, job: Job) -> None:
        """After a fault of our own in its end: whoever has not heard of that hears that it failed, with what was
        written. Of two ends a reader keeps the first."""
        session_id, answer = job.order.request.session_id, job.answer
        done = job.done or failed_end(job.id, session_id, OWN_FAULT, attempt=answer.attempt, text=answer.text)
        job.done, job.owed = done, set(job.targets)
        for target in job.targets:
            with contained("answer", request_id=job.id):
                self._publish_done(job, done, target)

    def keep(self, job: Job, done: ReplyDone, now_unix_ms: float) -> None:
        """Keep an answer for whoever asks for it again."""
        self._recent.add(job.order, done, now_unix_ms)

    def _publish_done(self, job: Job, done: ReplyDone, target: Target) -> None:
        self._publisher.done(target, done, partial(self._acknowledged, job, target))

    def _acknowledged(self, job: Job, target: Target) -> None:
        """Where all of its targets have the end, its records may be committed."""
        if target not in job.owed:
            return
        job.owed.discard(target)
        if not job.owed:
            del self._jobs[job.id]
            for origin in job.origins:
                with contained("record", request_id=job.id):
                    self._offsets.done(*origin)
