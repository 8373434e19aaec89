"""The worker: each request from its acceptance to its end.

    intake → engine_loop (scheduler → engine → answer) → reply_publisher → offsets → commit

The event loop owns a job from `accept` until its terminal event is acknowledged; while the answer is computed, the
engine's thread owns the answer.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from shared.conversation.erasures import Erasures
from shared.conversation.history import History
from shared.process.clock import now_unix_ms, wire_unix_ms
from shared.records.deliveries import Partition
from shared.telemetry.faults import contain_each, contained
from shared.wire.messages import Cancel, Erase, ReplyDone
from shared.wire.session_key import SessionKey
from workers.request.ending import ended_at_once, terminal_event, turn_of
from workers.request.job import Job
from workers.request.open_answers import OpenAnswers
from workers.schedule.sequence import Finished, Phase
from workers.serving.drafts import Ended, Grown, Progress, Released
from workers.serving.loaded_versions import LoadedVersions, ServedVersion
from workers.serving.shadow import Shadow
from workers.telemetry.answer_metrics import count_end
from workers.telemetry.tracer import Tracer

if TYPE_CHECKING:
    from workers.serving.centre import CentreClient

_IDLE_POLL_S = 0.02


class Worker:
    """Answers requests; each job is computed by the version that prepared it.

    Args:
        versions: the loaded versions.
        answers: the open answers.
        history: the conversations' turns.
        replies: the gateways' own reply topic.
        max_waiting: requests read ahead.
        released: called with jobs that are given up (`release_unseen`).
        tracer: adds times to terminal events.
        shadow: compares answers, in a shadow's worker.
        centre: answers questions that this edge is unsure of.
    """

    def __init__(
        self,
        *,
        versions: LoadedVersions,
        answers: OpenAnswers,
        history: History,
        replies: str,
        max_waiting: int,
        released: Callable[[Job], None] = lambda _: None,
        tracer: Tracer | None = None,
        shadow: Shadow | None = None,
        centre: "CentreClient | None" = None,
    ) -> None:
        self._versions = versions
        self._answers = answers
        self._history = history
        self._replies = replies
        self.max_waiting = max_waiting
        self._released = released
        self._tracer = tracer or Tracer()
        self._shadow = shadow
        self._centre = centre
        self._erasures = Erasures()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._engine_gone = False
        self.outlook_changed = asyncio.Event()

    # --- requests, cancels, erasures

    def accept(self, job: Job, *, cancelled: bool = False) -> None:
        """Compute a request; one that does not need the model is answered immediately. `cancelled`: it was already
        cancelled."""
        sequence, job.withdrawn = job.sequence, cancelled
        if self._erasures.erased(job.session, job.order.generation, now_unix_ms()):
            job.erased = True
            sequence.erase()
        self._answers.add(job)
        if self._centre is not None and not cancelled and self._centre.ask(job, self.publish, self._answer_decided):
            return
        if job.decided:
            self._answer_decided(job)
            return
        with contained("answer", request_id=job.id) as adding:
            engine_loop = self._versions[job.revision].engine_loop
            engine_loop.add(job)
            if cancelled:
                engine_loop.cancel(job.id)
        if adding.error is not None:
            self._answers.readers.fail(job)

    def _answer_decided(self, job: Job) -> None:
        """Answer a request that does not need the model."""
        self.publish([Ended(job, ended_at_once(job, cancelled=job.withdrawn, now_unix_ms=now_unix_ms()))])

    def cancel(self, cancel: Cancel) -> bool:
        """End an answer before the next step, unless it has other readers; return False if there is no such answer."""
        job = self._answers.cancel(cancel)
        if job is None or not job.withdrawn:
            return job is not None
        if self._centre is None or not self._centre.cancel(job.id):
            self._versions[job.revision].engine_loop.cancel(job.id)
        return True

    def release_unseen(self) -> None:
        """Give up the answers without text before their next step; `released` is called with each job."""
        for served in self._versions:
            served.engine_loop.release_unseen()

    def erase(self, erase: Erase) -> None:
        """Forget a conversation's earlier generations; requests that are being prepared are forgotten when they are
        accepted."""
        session, generation = SessionKey(erase.tenant, erase.session_id), erase.generation
        self._erasures.add(session, generation, now_unix_ms())
        contain_each(
            "record",
            lambda: self._answers.erase(session, generation),
            lambda: self._history.forget(session, generation),
            *(partial(served.erase, session, generation) for served in self._versions),
        )

    @property
    def idle(self) -> bool:
        """Return whether no reader waits for an answer that can still come. An engine that has stopped or hangs
        gives none."""
        return self._answers.idle(only_ended=self._engine_gone or self._versions.stuck() is not None)

    # --- the engine's thread

    async def compute(self, served: ServedVersion) -> None:
        """Compute with a version until cancelled.

        Raises:
            EngineError: its engine failed repeatedly.
        """
        self._loop = asyncio.get_running_loop()
        try:
            await served.engine_loop.serve()
        finally:
            self._engine_gone = self._engine_gone or served in self._versions

    def publish_soon(self, progress: list[Progress]) -> None:
        """Publish new text and ends; callable from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.publish, progress)

    def note_outlook(self) -> None:
        """Record that an engine's outlook has changed; callable from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.outlook_changed.set)

    def publish(self, progress: list[Progress]) -> None:
        """Publish new text and ends, on the event loop.

        A fault in an answer's end fails that answer; text that could not be published comes with its end.
        """
        for item in progress:
            with contained("answer", request_id=item.job.id) as publishing:
                if isinstance(item, Ended):
                    self._end(item.job, item.finished)
                elif isinstance(item, Released):
                    self._release(item.job)
                else:
                    self._answers.readers.publish_delta(item.job, item.delta)
            if publishing.error is not None and not isinstance(item, Grown):
                self._answers.readers.fail(item.job)

    # --- the end of an answer

    def _end(self, job: Job, finished: Finished) -> None:
        now = now_unix_ms()
        model = self._versions[job.revision].info.model
        done = terminal_event(job, finished, model=model, gateways=self._replies)
        traced = done
        with contained("answer", request_id=job.id):
            traced = self._tracer.traced(job, done, now)
        with contained("history", request_id=job.id):
            # before its end is published, so that the next question finds it even if this process is killed
            self._remember(job, done)
        self._answers.readers.publish_end(job, traced, job.answer.pop_delta())
        contain_each(
            "answer",
            lambda: self._count(job, finished, done, now),
            lambda: None if job.erased else self._answers.keep(job, done, now),
            request_id=job.id,
        )

    def _count(self, job: Job, finished: Finished, done: ReplyDone, now: float) -> None:
        """Count an ended answer; a shadow's is compared instead."""
        if self._shadow is None:
            count_end(job, finished, done, now)
        else:
            self._shadow.end(job, done, now)

    def _release(self, job: Job) -> None:
        """Give up a job; a withdrawn one ends."""
        if job.withdrawn:
            self._end(job, Finished(job.sequence, "cancelled", "client"))
            return
        self._answers.release(job)
        self._released(job)

    def _remember(self, job: Job, done: ReplyDone) -> None:
        turn = None if self._shadow else turn_of(job, done, wire_unix_ms(), others=self._answers.others(job))
        if turn is not None:
            self._history.remember(job.session, turn, journal=job.outcome is None)

    # --- the end of the process

    @property
    def suspects(self) -> list[tuple[Partition, int]]:
        """Return the records of the sequences in a hanging engine's slots, one of which may be the cause."""
        stuck = {served.revision for served in self._versions if served.engine_loop.stuck() is not None}
        running = (Phase.PREFILL, Phase.DECODE)
        jobs = [job for job in self._answers.jobs if job.revision in stuck and job.sequence.phase in running]
        return [origin for job in jobs for origin in job.origins]

    async def drain(self, limit_s: float | None) -> int:
        """Wait for the answers in flight; return how many were left unfinished."""
        try:
            async with asyncio.timeout(limit_s):
                while not self.idle:  # noqa: ASYNC110 - runs once in a process's life
                    await asyncio.sleep(_IDLE_POLL_S)
        except TimeoutError:
            pass
        return len(self._answers.jobs)
