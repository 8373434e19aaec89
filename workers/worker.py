"""The worker's loop, and the only file that touches every step of it.

    intake → scheduler.next_step → engine → scheduler.complete → answer → reply_publisher → offsets → commit

One task owns the scheduler and the jobs; the engine computes on one thread of its own; so there are no locks.
"""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from shared import metrics
from shared.clock import now_unix_ms
from shared.errors import EngineError
from shared.history import History, Turn
from shared.logs import get_logger
from shared.messages import ErrorDetail, ReplyDone
from shared.topics import TopicNames
from workers.engine import Engine
from workers.job import Job
from workers.offsets import OffsetTracker, Partition
from workers.reply_publisher import ReplyPublisher, Target
from workers.scheduler import Scheduler, Step
from workers.sequence import Finished, Phase, Token

log = get_logger()

_MAX_ENGINE_FAILURES = 3
_IDLE_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class StepResult:
    """What the engine sampled, and how long each part of the step took."""

    prefill_tokens: list[int | None]
    decode_tokens: list[int]
    prefill_s: float
    decode_s: float


def run_step(engine: Engine, step: Step) -> StepResult:
    """Compute a step, on the engine's thread. Raises `EngineError`."""
    for move in step.moves:
        engine.move(source=move.source, target=move.target, length=move.length)
    start = time.perf_counter()
    decoded = engine.decode(step.decode) if step.decode else []
    middle = time.perf_counter()
    prefilled = engine.prefill(step.prefill) if step.prefill else []
    return StepResult(prefilled, decoded, prefill_s=time.perf_counter() - middle, decode_s=middle - start)


@dataclass(slots=True, kw_only=True)
class Worker:
    engine: Engine
    scheduler: Scheduler
    publisher: ReplyPublisher
    history: History
    offsets: OffsetTracker
    topics: TopicNames
    max_waiting: int
    room_again: asyncio.Event = field(default_factory=asyncio.Event)
    _jobs: dict[str, Job] = field(default_factory=dict)
    _unread: dict[str, list[tuple[Partition, int]]] = field(default_factory=dict)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _failures: int = 0

    # --- what intake and the reply publisher tell

    def accept(self, job: Job) -> None:
        self._jobs[job.id] = job
        self.scheduler.add(job.sequence)
        self._wake.set()

    def answer_unread(self, target: Target, done: ReplyDone, origin: tuple[Partition, int]) -> None:
        """The terminal event of a record that never became a job."""
        self._unread.setdefault(done.request_id, []).append(origin)
        self.publisher.done(target, done)

    def find(self, request_id: str) -> Job | None:
        return self._jobs.get(request_id)

    def room(self) -> int:
        return self.max_waiting - self.scheduler.num_waiting

    def cancel(self, request_id: str) -> bool:
        self._wake.set()
        return self.scheduler.cancel(request_id)

    def settled(self, done: ReplyDone) -> None:
        """A terminal event is acknowledged: its records may be committed."""
        origins = self._unread.pop(done.request_id, [])
        job = self._jobs.get(done.request_id)
        if job is not None and job.sequence.phase is Phase.FINISHED:
            del self._jobs[done.request_id]
        else:  # a late record of the same id was told apart from the job that is still being answered
            job = None
        for partition, offset in [*origins, *(job.origins if job else ())]:
            self.offsets.done(partition, offset)

    @property
    def idle(self) -> bool:
        return not self._jobs and not self._unread

    # --- the loop

    async def run(self) -> None:
        """Serve until cancelled. Raises `EngineError` when the engine keeps failing."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, thread_name_prefix="engine") as thread:
            while True:
                step = self._next_step()
                if step is None:
                    self._wake.clear()
                    await self._wake.wait()
                    continue
                try:
                    result = await loop.run_in_executor(thread, run_step, self.engine, step)
                except EngineError as error:
                    self._fail(error)
                    continue
                self._failures = 0
                self._take_in(step, result)

    def _next_step(self) -> Step | None:
        now = now_unix_ms()
        for finished in self.scheduler.sweep(now):
            self._end(finished)
        step = self.scheduler.next_step(now)
        metrics.waiting.set(self.scheduler.num_waiting)
        metrics.slots_used.set(self.scheduler.num_running)
        if self.room() > self.max_waiting // 2:
            self.room_again.set()
        return step

    def _take_in(self, step: Step, result: StepResult) -> None:
        now = now_unix_ms()
        _count(step, result)
        touched: dict[str, Job] = {}
        for event in self.scheduler.complete(step, result.prefill_tokens, result.decode_tokens, now):
            job = self._jobs[event.sequence.request_id]
            if isinstance(event, Token):
                job.answer.add(event.token_id)
                touched[job.id] = job
            else:
                touched.pop(job.id, None)
                # The last token allowed may also complete a stop string.
                self._end(Finished(job.sequence, "completed", "stop") if job.answer.stopped else event)
        for job in touched.values():
            if job.answer.stopped:
                self.scheduler.finish(job.sequence)
                self._end(Finished(job.sequence, "completed", "stop"))
            elif (delta := job.answer.take_delta()) is not None:
                self.publisher.delta(job.target, delta)

    def _fail(self, error: EngineError) -> None:
        """The device failed: what stands in it ends, what waits gets its turn."""
        self._failures += 1
        ended = self.scheduler.finish_running()
        log.error("engine_failed", cause=str(error), sequences=len(ended), failures_in_a_row=self._failures)
        for sequence in ended:
            self._end(Finished(sequence, "failed", "internal"))
        if self._failures >= _MAX_ENGINE_FAILURES:
            raise error

    # --- the end of an answer

    def _end(self, finished: Finished) -> None:
        job = self._jobs[finished.sequence.request_id]
        job.answer.finish()
        metrics.served.labels(finished.status, finished.reason).inc()
        sequence = job.sequence
        log.info(
            "answered",
            request_id=job.id,
            status=finished.status,
            reason=finished.reason,
            input_tokens=len(sequence.prompt_ids),
            output_tokens=len(sequence.output_ids),
            slack_ms=round(sequence.deadline.deadline_unix_ms - now_unix_ms()),
        )
        done = self._terminal(job, finished)
        self._remember(job, done)
        if (delta := job.answer.take_delta()) is not None:
            self.publisher.delta(job.target, delta)  # leaves in one batch with the terminal event
        self.publisher.done(job.target, done)

    def _remember(self, job: Job, done: ReplyDone) -> None:
        if not done.output_text or done.status == "failed":
            return
        order = job.order
        turn = Turn(
            request_id=job.id,
            user=order.request.input,
            assistant=done.output_text,
            source=done.source,
            asked_unix_ms=order.created_unix_ms,
        )
        self.history.remember(order.tenant, order.request.session_id, turn)

    def _terminal(self, job: Job, finished: Finished) -> ReplyDone:
        late = finished.reason == "deadline" and not job.answer.text
        if late and job.order.reply_topic != self.topics.replies:
            # A gateway has answered its client from the FAQ by now; for other services the worker does.
            fallback = job.fallback
            return job.answer.replaced(
                text=fallback.text,
                source=fallback.source,
                status="completed",
                reason="stop",
                usage=job.usage(),
                timings=job.timings(),
                grounding=fallback.grounding,
            )
        failed = finished.status == "failed"
        return job.answer.done(
            status=finished.status,
            reason=finished.reason,
            usage=job.usage(),
            timings=job.timings(),
            model=self.engine.info.model,
            grounding=job.grounding,
            error=_ENGINE_FAILED if failed else None,
        )

    async def drain(self, limit_s: float) -> int:
        """Wait for what is in flight; returns how many answers were left unfinished."""
        try:
            async with asyncio.timeout(limit_s):
                while not self.idle:  # noqa: ASYNC110 - asked once in a process's life
                    await asyncio.sleep(_IDLE_POLL_S)
        except TimeoutError:
            pass
        return len(self._jobs)


_ENGINE_FAILED = ErrorDetail(
    type="server_error", code="engine_failed", message="the engine failed in this answer; ask again", retryable=True
)


def _count(step: Step, result: StepResult) -> None:
    if step.prefill:
        metrics.steps.labels("prefill").inc()
        metrics.step_time.labels("prefill").observe(result.prefill_s)
        metrics.prompt_tokens.inc(sum(len(chunk.token_ids) for chunk in step.prefill))
    if step.decode:
        metrics.steps.labels("decode").inc()
        metrics.step_time.labels("decode").observe(result.decode_s)
        metrics.batch_rows.observe(len(step.decode))
    metrics.output_tokens.inc(len(step.decode) + sum(token is not None for token in result.prefill_tokens))
