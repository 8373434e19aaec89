"""The engine's loop: run steps while there is something to compute.

    mail → sweep → plan a step → compute it → tokens to the answers → publish

Its thread owns the engine, the scheduler and the answers being written; no other thread uses them until an answer has
ended. New jobs, cancels and erasures go into a mailbox that is emptied before each step, so they take effect within one
step. No step waits for the event loop, and no lock is needed: a deque's append and popleft are atomic.
"""

from collections import deque
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field
from typing import Final

from shared.errors import EngineError
from shared.process.clock import monotonic_s, now_unix_ms
from shared.process.threads import Event, make_event
from shared.telemetry import metrics
from shared.telemetry.faults import caught, contained
from shared.telemetry.logs import get_logger
from shared.wire.session_key import SessionKey
from workers.engine import Engine
from workers.request.job import Job
from workers.schedule.costs import CostModel
from workers.schedule.outlook import LatestOutlook, Outlook
from workers.schedule.scheduler import EngineStep, Scheduler
from workers.schedule.sequence import Finished, Prefix, Token
from workers.serving.drafts import Drafts
from workers.serving.engine_step import Keep, StepResult, count_step, learn_costs, run_step
from workers.serving.engine_thread import EngineThread

_OVERDUE: Final = 0.1
"""When a step has taken this share of its limit, the outlook from before it is no longer valid."""


@dataclass(slots=True)
class StepWatch:
    """A context manager around each step. A step longer than `limit_s` counts as one that never ends."""

    limit_s: float
    _since_s: float | None = field(default=None, init=False)  # monotonic; None between steps

    def __enter__(self) -> None:
        self._since_s = monotonic_s()

    def __exit__(self, *_: object) -> None:
        self._since_s = None

    @property
    def overdue(self) -> bool:
        """Return whether the step takes much longer than usual."""
        return self._passed_s >= self.limit_s * _OVERDUE

    @property
    def stuck(self) -> str | None:
        """Return the error message for a step that does not end; None while steps end."""
        passed_s = self._passed_s
        if passed_s < self.limit_s:
            return None
        return f"an engine step has not ended for {passed_s:.0f} s: this worker ends"

    @property
    def _passed_s(self) -> float:
        """Return the duration of the current step so far."""
        since_s = self._since_s
        return 0.0 if since_s is None else monotonic_s() - since_s


_MAX_FAILURES = 3
# A step takes a fraction of this; at the process's end a longer one is not awaited.
_LAST_STEP_S: Final = 5.0
_MOST_STEPS: Final = 64
_NOTHING: Final[Mapping[SessionKey, Tokens[int]]] = {}

_schedule_time = metrics.step_time.labels("schedule")
_complete_time = metrics.step_time.labels("complete")


class Release:
    """Mail: give up the answers without text, which another worker answers."""


@dataclass(slots=True, kw_only=True)
class EngineLoop:
    """Runs an engine.

    Attributes:
        keep: receives a sequence's KV from a token on, after its end was published; called on the engine's thread.
        watch: watches the duration of steps.
        changed: called on the engine's thread when the outlook has changed.
        computes: the thread is using the engine.
    """

    engine: Engine
    scheduler: Scheduler
    costs: CostModel
    drafts: Drafts
    keep: Keep
    watch: StepWatch
    changed: Callable[[], None] = lambda: None
    computes: bool = field(default=False, init=False)
    _mail: deque[Job | str | SessionKey | Release] = field(default_factory=deque, init=False)
    _wake: Event = field(default_factory=make_event, init=False)
    _stopped: bool = field(default=False, init=False)
    _failures: int = field(default=0, init=False)
    _standing: Mapping[SessionKey, Tokens[int]] = field(default_factory=dict, init=False)
    _load: tuple[int, int] = field(default=(0, 0), init=False)
    _outlook: LatestOutlook = field(default_factory=LatestOutlook, init=False)
    _steps: list[tuple[EngineStep, StepResult, float, float]] = field(default_factory=list, init=False)

    # --- called from any thread

    async def serve(self) -> None:
        """Compute on a separate thread until cancelled. Raises what `run` raises."""
        thread, self.computes = EngineThread(self.run), True
        try:
            await thread.ended()
        finally:
            self.stop()
            if self.stuck() is None:
                self.computes = not await thread.wait(_LAST_STEP_S)

    def stop(self) -> None:
        """Make `run` return after its current step."""
        self._stopped = True
        self._wake.set()

    def add(self, job: Job) -> None:
        self._mail.append(job)
        self._wake.set()

    def cancel(self, request_id: str) -> None:
        self._mail.append(request_id)
        self._wake.set()

    def release_unseen(self) -> None:
        """Give up every answer without text at the beginning of the next step."""
        self._mail.append(Release())
        self._wake.set()

    def forget(self, session: SessionKey) -> None:
        """Forget an erased conversation: its KV in a slot is not used again."""
        self._mail.append(session)
        self._wake.set()

    def standing(self, session: SessionKey) -> Tokens[int]:
        """Return the tokens of a conversation whose KV is still in a slot; none if queued mail might overwrite it."""
        return () if self._mail else self._standing.get(session, ())

    @property
    def outlook(self) -> Outlook | None:
        """Return what a new request could expect, as of a moment ago; None while a step is overdue."""
        return None if self.watch.overdue else self._outlook.value

    def stuck(self) -> str | None:
        """Return the error message of an engine whose step does not end; None while steps end."""
        return self.watch.stuck

    missing = stuck  # for `/ready`

    # --- called on the engine's thread

    def run(self) -> None:
        """Run until `stop`.

        Raises:
            EngineError: the engine failed repeatedly without completing an answer in between.
            Exception: any other exception that occurs repeatedly.
        """
        while not self._stopped:
            if not self.turn():
                wake_unix_ms = self.scheduler.wake_unix_ms()
                self._wake.wait(None if wake_unix_ms is None else max(0.0, (wake_unix_ms - now_unix_ms()) / 1_000))
                self._wake.clear()

    def turn(self) -> bool:
        """Plan, compute and complete a step; return False if there is nothing to compute. Raises an exception that
        repeats."""
        with self.watch:
            try:
                begun_s = monotonic_s()
                step = self._next_step()
                if step is None:
                    self.drafts.flush()
                    self._count_steps()
                    return False
                planned_s = monotonic_s()
                result = run_step(self.engine, step, self.keep)
                computed_s = monotonic_s()
                published = self._complete(step, result)
                self._steps.append((step, result, planned_s - begun_s, monotonic_s() - computed_s))
                if published or len(self._steps) == _MOST_STEPS:
                    self._count_steps()
            except Exception as error:  # noqa: BLE001 - counted and logged; it is unknown which sequence caused it
                self._fail(error)
            return True

    def _next_step(self) -> EngineStep | None:
        """Read the mail, remove what is cancelled, too late or given up, and plan a step."""
        now = now_unix_ms()
        while self._mail:
            mail = self._mail.popleft()
            try:
                self._read(mail, now)
            except Exception as error:  # noqa: BLE001 - counted and logged; the rest of the mail is read
                self.drafts.give_up(mail.id if isinstance(mail, Job) else "", error)
        for finished in self.scheduler.sweep(now):
            self.drafts.finish(finished)
        self.drafts.flush_ends()  # a step may take long
        step = self.scheduler.next_step(now)
        self._standing = self.scheduler.standing() if step is None else _NOTHING
        load = self.scheduler.num_waiting, self.scheduler.num_running
        if load != self._load:  # the metric is the sum over several versions
            metrics.load.labels("waiting").inc(load[0] - self._load[0])
            metrics.load.labels("used").inc(load[1] - self._load[1])
            self._load = load
        if self._outlook.renew(self.scheduler.outlook, load, now, idle=step is None):
            with contained("task"):
                self.changed()
        return step

    def _read(self, mail: Job | str | SessionKey | Release, now: float) -> None:
        if isinstance(mail, Job):
            self.drafts.add(mail)
            self.scheduler.add(mail.sequence, now)
        elif isinstance(mail, SessionKey):
            self.scheduler.forget(mail)
        elif isinstance(mail, Release):
            self.drafts.release_unseen()
        else:
            self.scheduler.cancel(mail)

    def _count_steps(self) -> None:
        """Record metrics and costs of the last steps.

        Right after a step, whose weights have filled the caches, each would cost three times as much as all of them
        together.
        """
        steps, self._steps = self._steps, []
        with contained("task"):
            for step, result, schedule_s, complete_s in steps:
                _schedule_time.observe(schedule_s)
                _complete_time.observe(complete_s)
                count_step(step, result, self.costs)
                learn_costs(self.costs, step, result)

    def _complete(self, step: EngineStep, result: StepResult) -> bool:
        """Add the sampled tokens to their answers and publish what is due; return whether anything was."""
        spoiled = self.scheduler.rows_in(result.spoiled)
        events = self.scheduler.complete(step, result.prefill_tokens, result.decode_tokens, now_unix_ms())
        for sequence in spoiled:
            sequence.begin_with(Prefix())
        self._apply_all(events)
        for place in range(1, max(map(len, result.verified), default=0)):
            self._apply_all(self.scheduler.add_accepted(step, result.verified, place))
        return self.drafts.flush_due()

    def _apply_all(self, events: Tokens[Token | Finished]) -> None:
        """Add one token of each row to its answer, and end the answers that are over with it."""
        for event in events:
            try:
                self._apply(event)
            except Exception as error:  # noqa: BLE001 - counted and logged; the other rows' tokens are added
                self.drafts.give_up(event.sequence.request_id, error)
        for job in self.drafts.stopped():
            with contained("answer", request_id=job.id):
                self.scheduler.finish(job.sequence, by_client=job.answer.stopped_by_client)
            self.drafts.finish(Finished(job.sequence, "completed", "stop"))

    def _apply(self, event: Token | Finished) -> None:
        job = self.drafts.get(event.sequence.request_id)
        if job is None:
            return  # given up by an earlier event of this step
        if isinstance(event, Token):
            if job.answer.add(event.token_id):
                self.drafts.note_growth(job)
                if job.sequence.shown_unix_ms is None and job.answer.text:
                    self.scheduler.shown(job.sequence, now_unix_ms())
            return
        self._failures = 0  # an answer completed, so the device works
        # The last allowed token may also complete a stop string, or a repetition that the guard cuts.
        self.drafts.finish(Finished(job.sequence, "completed", "stop") if job.answer.stopped else event)

    def _fail(self, error: Exception) -> None:
        """Fail the sequences in the slots after an error of the device or of shared code; waiting ones will run.

        Raises:
            Exception: the error, if it has occurred too often.
        """
        self._failures += 1
        known = isinstance(error, EngineError)
        if not known:
            caught("task", error)
        self.scheduler.finish_running()
        ended = [job for job in self.drafts if job.id not in self.scheduler]
        cause = str(error) if known else type(error).__name__
        get_logger().error("engine_failed", cause=cause, sequences=len(ended), failures_in_a_row=self._failures)
        for job in ended:
            self.drafts.finish(Finished(job.sequence, "failed", "internal"))
        self.drafts.flush()
        if self._failures >= _MAX_FAILURES:
            raise error
