"""The worker: each request from its acceptance to its end.

    intake → engine_loop (scheduler → engine → answer) → reply_publisher → offsets → commit

The event loop owns the jobs from `accept` until their terminal event is acknowledged; in between, the engine's thread
owns their answers.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from shared.conversation.erasures import Erasures
from shared.conversation.history import History
from shared.process.clock import now_unix_ms
from shared.records.deliveries import Partition
from shared.telemetry.faults import contain_each, contained
from shared.wire.messages import Cancel, Erase, ReplyDone
from shared.wire.session_key import SessionKey
from workers.kv.cache import KvCache
from workers.prompt.conversation import Prompts
from workers.request.ending import ended_at_once, terminal_event, turn_of
from workers.request.job import Job
from workers.request.open_answers import OpenAnswers
from workers.schedule.sequence import Finished, Phase
from workers.serving.drafts import Ended, Progress
from workers.serving.engine_loop import EngineLoop
from workers.serving.upstream_loop import UpstreamLoop
from workers.telemetry.answer_metrics import count_end
from workers.telemetry.tracer import Tracer

_IDLE_POLL_S = 0.02


class MakeLoop(Protocol):
    def __call__(
        self, *, publish: Callable[[list[Progress]], None], changed: Callable[[], None]
    ) -> EngineLoop | UpstreamLoop:
        """Return the loop that computes. It calls `publish` with what is new of its answers, and `changed` where its
        outlook has changed, on any thread."""


class Worker:
    """`replies` is the gateways' own topic."""

    def __init__(
        self,
        *,
        make_loop: MakeLoop,
        model: str,
        answers: OpenAnswers,
        history: History,
        prompts: Prompts,
        replies: str,
        max_waiting: int,
        kv: KvCache | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self._answers = answers
        self._history = history
        self._prompts = prompts
        self._replies = replies
        self.max_waiting = max_waiting
        self._kv = kv
        self._tracer = tracer or Tracer()
        self._model = model
        self._erasures = Erasures()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._engine_gone = False
        self.outlook_changed = asyncio.Event()
        self.engine_loop = make_loop(publish=self._publish_soon, changed=self._outlook_changed)

    # --- requests, cancels, erasures

    def accept(self, job: Job, *, cancelled: bool = False) -> None:
        """Have a request computed; one that the model is not asked for is answered at once. `cancelled`: nobody waits
        for it any more."""
        sequence, job.withdrawn = job.sequence, cancelled
        if self._erasures.erased(job.session, job.order.generation, now_unix_ms()):
            job.erased = True
            sequence.erase()
        self._answers.add(job)
        if job.decided:
            self.publish([Ended(job, ended_at_once(job, cancelled=cancelled, now_unix_ms=now_unix_ms()))])
            return
        with contained("answer", request_id=job.id) as adding:
            self.engine_loop.add(job)
            if cancelled:
                self.engine_loop.cancel(job.id)
        if adding.error is not None:
            self._answers.readers.fail(job)

    def cancel(self, cancel: Cancel) -> bool:
        """Have an answer end before the next step, unless others still wait for it; False where none is being
        written."""
        job = self._answers.cancel(cancel)
        if job is not None and job.withdrawn:
            self.engine_loop.cancel(job.id)
        return job is not None

    def erase(self, erase: Erase) -> None:
        """Forget what this process holds of a conversation's earlier generations; what is being prepared of them is
        forgotten when it is accepted."""
        session, generation = SessionKey(erase.tenant, erase.session_id), erase.generation
        self._erasures.add(session, generation, now_unix_ms())
        contain_each(
            "record",
            lambda: self._answers.erase(session, generation),
            lambda: self._history.forget(session, generation),
            lambda: self.engine_loop.forget(session),
            lambda: None if self._kv is None else self._kv.erase(session, generation),
            lambda: self._prompts.forget(session),
        )

    @property
    def idle(self) -> bool:
        """Return whether nobody waits for an answer that is still to come: an engine that is gone or hangs gives no
        more."""
        return self._answers.idle(only_ended=self._engine_gone or self.engine_loop.stuck() is not None)

    # --- the engine's thread

    async def run(self) -> None:
        """Serve until `stop`. Raises `EngineError` when the engine keeps failing."""
        self._loop = asyncio.get_running_loop()
        try:
            await self.engine_loop.serve()
        finally:
            self._engine_gone = True

    def _publish_soon(self, progress: list[Progress]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.publish, progress)

    def _outlook_changed(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.outlook_changed.set)

    def publish(self, progress: list[Progress]) -> None:
        """Publish new text and ends; on the event loop. A fault in one answer's end fails that answer; text that could
        not be published comes with its end."""
        for item in progress:
            with contained("answer", request_id=item.job.id) as publishing:
                if isinstance(item, Ended):
                    self._end(item.job, item.finished)
                else:
                    self._answers.readers.publish_delta(item.job, item.delta)
            if publishing.error is not None and isinstance(item, Ended):
                self._answers.readers.fail(item.job)

    # --- the end of an answer

    def _end(self, job: Job, finished: Finished) -> None:
        now = now_unix_ms()
        done = terminal_event(job, finished, model=self._model, gateways=self._replies)
        traced = done
        with contained("answer", request_id=job.id):
            traced = self._tracer.traced(job, done, now)
        self._answers.readers.publish_end(job, traced, job.answer.pop_delta())
        contain_each(
            "answer",
            lambda: count_end(job, finished, done, now),
            lambda: self._remember(job, done),
            lambda: None if job.erased else self._answers.keep(job, done, now),
            request_id=job.id,
        )

    def _remember(self, job: Job, done: ReplyDone) -> None:
        if (turn := turn_of(job, done)) is not None:
            self._history.remember(job.session, turn)

    # --- the end of the process

    @property
    def suspects(self) -> list[tuple[Partition, int]]:
        """Return the records of the sequences in the slots of an engine that hangs: one of them may be the cause."""
        if self.engine_loop.stuck() is None:
            return []
        running = (Phase.PREFILL, Phase.DECODE)
        return [origin for job in self._answers.jobs if job.sequence.phase in running for origin in job.origins]

    async def drain(self, limit_s: float) -> int:
        """Wait for what is in flight; returns how many answers were left unfinished."""
        try:
            async with asyncio.timeout(limit_s):
                while not self.idle:  # noqa: ASYNC110 - asked once in a process's life
                    await asyncio.sleep(_IDLE_POLL_S)
        except TimeoutError:
            pass
        return len(self._answers.jobs)
