"""A worker's requests, and the only file that touches every step of one.

    intake → engine_loop (scheduler → engine → answer) → reply_publisher → offsets → commit

The event loop owns the jobs from `accept` until their terminal event is acknowledged; in between, the engine's thread
owns what is written of them.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from shared.conversation.erasures import Erasures
from shared.conversation.history import History
from shared.conversation.turn import Turn
from shared.errors import ProtocolError
from shared.faq.fallback import Fallback
from shared.process.clock import now_unix_ms
from shared.records.deliveries import Partition
from shared.records.offsets import OffsetTracker
from shared.telemetry.faults import contain_each, contained
from shared.wire.failed_ends import OWN_FAULT, failed_end
from shared.wire.messages import Adopt, Cancel, ReplyDelta, ReplyDone
from shared.wire.outcome import BY_MODEL, ErrorDetail
from shared.wire.requests import Order, Target
from shared.wire.session_key import SessionKey
from shared.wire.topics import TopicNames
from workers.kv.cache import KvCache
from workers.request.job import Job, target_of
from workers.request.recent_answers import RecentAnswers
from workers.request.reply_publisher import ReplyPublisher
from workers.schedule.sequence import Finished, Phase
from workers.serving.engine_loop import Ended, EngineLoop, News
from workers.serving.upstream_loop import UpstreamLoop
from workers.telemetry.answer_metrics import count_end
from workers.telemetry.tracer import Tracer

_IDLE_POLL_S = 0.02
_ENGINE_FAILED: Final = ErrorDetail(
    type="server_error", code="engine_failed", message="the engine failed in this answer; ask again", retryable=True
)


class MakeLoop(Protocol):
    def __call__(self, *, tell: Callable[[list[News]], None], changed: Callable[[], None]) -> EngineLoop | UpstreamLoop:
        """Return what computes: it tells its news, and that its outlook has changed, on any thread."""


class Worker:
    def __init__(
        self,
        *,
        make_loop: MakeLoop,
        model: str,
        publisher: ReplyPublisher,
        history: History,
        offsets: OffsetTracker,
        topics: TopicNames,
        max_waiting: int,
        kv: KvCache | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self._publisher = publisher
        self._history = history
        self._offsets = offsets
        self._topics = topics
        self.max_waiting = max_waiting
        self._kv = kv
        self._tracer = tracer or Tracer()
        self._model = model
        self._jobs: dict[str, Job] = {}
        self._recent = RecentAnswers()
        self.erasures = Erasures()
        self._unread: dict[tuple[str, Target], list[Callable[[], None]]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._engine_gone = False
        self.outlook_changed = asyncio.Event()
        self.engine_loop = make_loop(tell=self._tell, changed=self._look_changed)

    # --- what intake and the reply publisher tell

    def accept(self, job: Job, *, cancelled: bool = False) -> None:
        """Have a request computed; what the model is not asked for has its answer at once. `cancelled`: nobody waits
        for it any more."""
        sequence, job.withdrawn = job.sequence, cancelled
        if self.erasures.erased(job.session, job.order.generation, now_unix_ms()):
            job.erased = True
            sequence.erase()
        self._jobs[job.id] = job
        if job.decided:
            self.hear([Ended(job, _ended_at_once(job, cancelled=cancelled, now_unix_ms=now_unix_ms()))])
            return
        with contained("answer", request_id=job.id) as adding:
            self.engine_loop.add(job)
            if cancelled:
                self.engine_loop.cancel(job.id)
        if adding.error is not None:
            self._fail(job)

    def answer_unread(self, target: Target, done: ReplyDone, origin: tuple[Partition, int]) -> bool:
        """Publish the terminal event of a record that never became a job; one that did, and is read again, has its own:
        then False."""
        job = self._jobs.get(done.request_id)
        if job is not None and origin in job.origins:
            return False
        self._tell_unread(target, done, partial(self._offsets.done, *origin))
        return True

    async def refuse(self, target: Target, done: ReplyDone) -> None:
        """Publish the end of a request that is not served; return when it is acknowledged. Nobody is told where another
        request under its id is being answered: a reader would take the end for that one's."""
        if done.request_id not in self._jobs:
            acknowledged = asyncio.Event()
            self._tell_unread(target, done, acknowledged.set)
            await acknowledged.wait()

    def _tell_unread(self, target: Target, done: ReplyDone, settle: Callable[[], None]) -> None:
        self._publisher.done(target, done)
        self._unread.setdefault((done.request_id, target), []).append(settle)

    def repeated(self, order: Order, origin: tuple[Partition, int]) -> bool:
        """Return whether a request is being answered already, or was lately: then it is not computed again. Its record
        is done when that answer is; who asked for it this time gets all of it. Raises `ProtocolError` where another
        request under its id is being answered."""
        job = self._jobs.get(order.request.id)
        if job is not None:
            if not job.answers(order):
                told = "another request with this id is being answered; give each its own"
                raise ProtocolError("invalid_field", told, param="id")
            job.origins.append(origin)
            self._tell_also(job, target_of(order), order.request.created_unix_ms)
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

    def _tell_also(self, job: Job, target: Target, created_unix_ms: int | None) -> None:
        """One more who waits for an answer; or a gateway that waits again: it may be another process than before, and
        have nothing of it. Others' readers keep what they were told."""
        known = target in job.targets
        job.targets[target] = created_unix_ms
        if known and target[0] != self._topics.replies:
            return
        if (delta := job.answer.so_far()).delta:
            self._publisher.delta(target, delta)
        if job.done is not None:
            job.owed.add(target)
            self._publisher.done(target, job.done)

    def adopt(self, adopt: Adopt) -> None:
        """Tell an answer where its client is now: what there is of it at once, be it nothing, so that its gateway need
        not read it from the log. What is not here, or is for nobody who comes now, that gateway hears nothing of."""
        target, job = (self._topics.replies, adopt.reply_partition), self._jobs.get(adopt.request_id)
        if job is None:
            done = self._recent.named(adopt.request_id, now_unix_ms())
            if done is not None:
                self._publisher.done(target, done)
        elif not job.leaving and adopt.created_unix_ms in job.targets.values():
            self._tell_also(job, target, adopt.created_unix_ms)
            if not job.answer.text:
                self._publisher.delta(target, job.answer.so_far())

    def cancel(self, cancel: Cancel) -> bool:
        """Have an answer end before the next step, unless others still wait for it; False where none is being written,
        or it is to end already: who cancels then may mean the same request asked again. A cancel that is older than the
        last request of its own asker takes nothing back."""
        job = self._jobs.get(cancel.request_id)
        if job is None or job.done is not None or job.withdrawn:
            return False
        told = job.targets
        if job.asked_again(cancel):
            return True
        if job.let_go(cancel.reply_partition):
            job.withdrawn = True
            self.engine_loop.cancel(job.id)
        for target in told:
            if target not in job.targets:
                self._publisher.forget(target, job.id)
        return True

    def erase(self, session: SessionKey, generation: int) -> None:
        """Forget what this process holds of a conversation's earlier generations, and what is being prepared of them
        when it comes."""
        self.erasures.add(session, generation, now_unix_ms())
        for job in self._jobs.values():
            job.erased = job.erased or (job.session == session and job.order.generation < generation)
        contain_each(
            "record",
            lambda: self._recent.forget(session),
            lambda: self._history.forget(session, generation),
            lambda: self.engine_loop.forget(session),
            lambda: None if self._kv is None else self._kv.erase(session, generation),
        )

    def settled(self, target: Target, done: ReplyDone) -> None:
        """Note that a terminal event is acknowledged there; where all of its targets have it, its records may be
        committed."""
        settles = self._unread.pop((done.request_id, target), [])
        job = self._jobs.get(done.request_id)
        if job is not None and job.done is not None:  # else: a late record with the id of an answer being written
            job.owed.discard(target)
            if not job.owed:
                settles = [*settles, *(partial(self._offsets.done, *origin) for origin in job.origins)]
                del self._jobs[done.request_id]
        for settle in settles:
            with contained("record", request_id=done.request_id):
                settle()

    @property
    def idle(self) -> bool:
        """Return whether nobody is owed anything; of an engine that is gone or hangs no more answers are to be
        expected."""
        gone = self._engine_gone or self.engine_loop.stuck() is not None
        jobs = [job for job in self._jobs.values() if job.done is not None] if gone else self._jobs
        return not jobs and not self._unread

    @property
    def partitions(self) -> set[Partition]:
        """Return the partitions of the requests that are being answered: one that has gone to another worker since is
        among them."""
        return {partition for job in self._jobs.values() for partition, _ in job.origins}

    # --- the engine's thread

    async def run(self) -> None:
        """Serve until `stop`. Raises `EngineError` when the engine keeps failing."""
        self._loop = asyncio.get_running_loop()
        try:
            await self.engine_loop.serve()
        finally:
            self._engine_gone = True

    def _tell(self, news: list[News]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.hear, news)

    def _look_changed(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.outlook_changed.set)

    def hear(self, news: list[News]) -> None:
        """On the event loop: what the engine's thread has to say. A fault in one answer's end fails that one; text that
        could not be told comes with its end."""
        for item in news:
            with contained("answer", request_id=item.job.id) as hearing:
                if isinstance(item, Ended):
                    self._end(item.job, item.finished)
                else:
                    for target in item.job.targets:
                        self._publisher.delta(target, item.delta)
            if hearing.error is not None and isinstance(item, Ended):
                self._fail(item.job)

    # --- the end of an answer

    def _end(self, job: Job, finished: Finished) -> None:
        now = now_unix_ms()
        done = self._terminal(job, finished)
        told = done
        with contained("answer", request_id=job.id):
            told = self._tracer.ended(job, done, now)
        self._publish_end(job, told, job.answer.take_delta())
        contain_each(
            "answer",
            lambda: count_end(job, finished, done, now),
            lambda: None if job.erased else self._remember(job, done),
            lambda: None if job.erased else self._recent.add(job.order, done, now),
            request_id=job.id,
        )

    def _publish_end(self, job: Job, done: ReplyDone, rest: ReplyDelta | None) -> None:
        job.done, job.owed = done, set(job.targets)
        for target in job.targets:
            if rest is not None:
                self._publisher.delta(target, rest)  # leaves in one batch with the terminal event
            self._publisher.done(target, done)

    def _fail(self, job: Job) -> None:
        """After a fault of our own in its end: whoever has not heard of that hears that it failed, with what was
        written. Of two ends a reader keeps the first."""
        session_id, answer = job.order.request.session_id, job.answer
        done = job.done or failed_end(job.id, session_id, OWN_FAULT, attempt=answer.attempt, text=answer.text)
        job.done, job.owed = done, set(job.targets)
        for target in job.targets:
            with contained("answer", request_id=job.id):
                self._publisher.done(target, done)

    def _remember(self, job: Job, done: ReplyDone) -> None:
        if not done.output_text or done.status == "failed":
            return
        order = job.order
        by_model = done.source in BY_MODEL
        turn = Turn(
            request_id=job.id,
            user=order.request.input,
            assistant=done.output_text,
            source=done.source,
            asked_unix_ms=order.created_unix_ms,
            grounding=job.prompt.grounding if by_model else done.grounding,
            output_ids=job.known_output_ids() if by_model else (),
            window_start=(job.prompt.window_start or job.id) if by_model else None,
            replaced=done.replaced,
            status=done.status,
            reason=done.reason,
            generation=order.generation,
        )
        self._history.remember(order.session, turn)

    def _terminal(self, job: Job, finished: Finished) -> ReplyDone:
        fallback = self._in_the_models_stead(job, finished)
        if fallback is not None:
            return job.answer.done(
                instead=(fallback.text, fallback.source),
                status="completed",
                reason="stop",
                usage=job.usage(),
                timings=job.timings(),
                grounding=fallback.grounding,
            )
        error = (OWN_FAULT if job.faulty else _ENGINE_FAILED) if finished.status == "failed" else None
        return job.answer.done(
            status=finished.status,
            reason=finished.reason,
            usage=job.usage(),
            timings=job.timings(),
            model=self._model,
            grounding=job.grounding,
            error=error,
        )

    def _in_the_models_stead(self, job: Job, finished: Finished) -> Fallback | None:
        if finished.unmet and not job.answer.text:
            # A gateway answers its client from the FAQ itself, or has by now; for other services the worker does.
            return job.fallback if job.order.reply_topic != self._topics.replies else None
        if finished.status not in ("completed", "incomplete"):
            return None
        if job.decided:
            return job.fallback
        return (job.instead or job.fallback) if job.answer.withheld else None

    @property
    def suspects(self) -> list[tuple[Partition, int]]:
        """The records of what stands in the slots of an engine that hangs: it may be one of them that it hangs over."""
        if self.engine_loop.stuck() is None:
            return []
        running = (Phase.PREFILL, Phase.DECODE)
        return [origin for job in self._jobs.values() if job.sequence.phase in running for origin in job.origins]

    async def drain(self, limit_s: float) -> int:
        """Wait for what is in flight; returns how many answers were left unfinished."""
        try:
            async with asyncio.timeout(limit_s):
                while not self.idle:  # noqa: ASYNC110 - asked once in a process's life
                    await asyncio.sleep(_IDLE_POLL_S)
        except TimeoutError:
            pass
        return len(self._jobs)


def _ended_at_once(job: Job, *, cancelled: bool, now_unix_ms: float) -> Finished:
    if cancelled:
        return Finished(job.sequence, "cancelled", "client")
    if job.order.deadline.expired(now_unix_ms, started=False):
        return Finished(job.sequence, "incomplete", "deadline")
    return Finished(job.sequence, "completed", "stop")
