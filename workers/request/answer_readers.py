"""Publish an answer to all of its readers: its text as it is written, and its end until each has acknowledged it."""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from shared.telemetry.faults import contained
from shared.wire.failed_ends import OWN_FAULT, failed_end
from shared.wire.messages import Cancel, ReplyDelta, ReplyDone
from shared.wire.requests import Target
from workers.request.job import Job


class Replies(Protocol):
    """Publishes replies; a shadow's publishes none."""

    def delta(self, target: Target, delta: ReplyDelta) -> None:
        """Publish text."""

    def done(self, target: Target, done: ReplyDone, settled: Callable[[], None]) -> None:
        """Publish an end; `settled` is called once it needs nothing more."""

    def forget(self, target: Target, request_id: str) -> None:
        """Forget an answer at a target where nobody reads it any more."""


class AnswerReaders:
    """`replies` is the gateways' own topic. `settled` is called once every reader has acknowledged a job's end."""

    def __init__(self, publisher: Replies, *, replies: str, settled: Callable[[Job], None]) -> None:
        self._publisher = publisher
        self._replies = replies
        self._settled = settled

    def add(self, job: Job, target: Target, created_unix_ms: int | None) -> None:
        """Add a reader, and publish to it the text so far; the gateway of a known target may be another process than
        before, and have nothing of it. Readers elsewhere keep what they have."""
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
        """Remove the readers that a cancel names; without its last reader a job is `withdrawn`. A cancel that is older
        than the last request of its own asker removes none."""
        before = job.targets
        if not job.asked_again(cancel):
            job.withdrawn = job.remove_readers(cancel.reply_partition)
        for target in before.keys() - job.targets.keys():
            self._publisher.forget(target, job.id)

    def publish_delta(self, job: Job, delta: ReplyDelta) -> None:
        for target in job.targets:
            self._publisher.delta(target, delta)

    def publish_end(self, job: Job, done: ReplyDone, rest: ReplyDelta | None) -> None:
        """Publish the terminal event, and the text before it that has not been published yet."""
        job.done, job.owed = done, set(job.targets)
        for target in job.targets:
            if rest is not None:
                self._publisher.delta(target, rest)  # leaves in one batch with the terminal event
            self._publish_end(job, done, target)

    def fail(self, job: Job) -> None:
        """Publish, after a fault of our own in a job's end, that it failed, with the text that was written. Of two ends
        a reader keeps the first."""
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
