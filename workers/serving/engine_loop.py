"""The engine's thread: steps as long as there is something to compute.

It owns the engine, the scheduler and the answers being written; nothing else touches them until an answer has ended.
What comes in (sequences, cancels) lies in a mailbox that is emptied before each step, so it takes effect within one.
What goes out is told in batches: an answer's first text and its end at once, all other text together every
`interval_s`, for on the way to the client each telling costs by itself, hardly by what is in it. No step waits for
the event loop, and no lock is needed: a deque's append and popleft are atomic.
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
from shared.wire.messages import ReplyDelta
from shared.wire.session_key import SessionKey
from workers.engine import Engine
from workers.request.job import Job
from workers.schedule.costs import CostModel
from workers.schedule.outlook import Outlook
from workers.schedule.scheduler import Scheduler, Step
from workers.schedule.sequence import Finished, Prefix, Token
from workers.serving.engine_step import Keep, StepResult, run_step
from workers.serving.engine_thread import EngineThread

_MAX_FAILURES = 3
# A step takes a fraction of it; a longer one is not waited for when the process ends.
_LAST_STEP_S: Final = 5.0
_NOTHING: Final[Mapping[SessionKey, Tokens[int]]] = {}
# What is expected is looked at anew so often while steps follow each other; sooner where somebody came or went.
_OUTLOOK_EVERY_MS: Final = 100.0
_OUTLOOK_CHANGED_MS: Final = 20.0
_OVERDUE: Final = 0.1
"""A step that has taken this share of its limit says that the outlook before it is wrong."""

# Counted in every step.
_schedule_time = metrics.step_time.labels("schedule")
_transfer_time = metrics.step_time.labels("transfer")
_prefill_time, _decode_time = (metrics.step_time.labels(kind) for kind in ("prefill", "decode"))
_complete_time = metrics.step_time.labels("complete")
_prompt_tokens, _padding_tokens, _output_tokens = (
    metrics.tokens.labels(kind) for kind in ("prompt", "padding", "output")
)
_prefill_ratio, _decode_ratio = (metrics.cost_ratio.labels(kind) for kind in ("prefill", "decode"))


@dataclass(frozen=True, slots=True)
class Said:
    """An answer grew."""

    job: Job
    delta: ReplyDelta


@dataclass(frozen=True, slots=True)
class Ended:
    """An answer ended; from now on its job is the hearer's."""

    job: Job
    finished: Finished


News = Said | Ended


@dataclass(slots=True, kw_only=True)
class EngineLoop:
    """`tell`, `changed` (another `outlook`) and `keep` are called on the engine's thread; `keep` takes the KV of
    a sequence that has ended, from a token on, after its end was told. `add`, `cancel`, `forget`, `standing`, `stop`,
    `num_waiting`, `outlook`, `stuck` may be used on any."""

    engine: Engine
    scheduler: Scheduler
    costs: CostModel
    tell: Callable[[list[News]], None]
    interval_s: float
    keep: Keep
    step_limit_s: float
    changed: Callable[[], None] = lambda: None
    _mail: deque[Job | str | SessionKey] = field(default_factory=deque, init=False)
    _wake: Event = field(default_factory=make_event, init=False)
    _stopped: bool = field(default=False, init=False)
    _jobs: dict[str, Job] = field(default_factory=dict, init=False)
    _touched: dict[str, Job] = field(default_factory=dict, init=False)
    _news: list[News] = field(default_factory=list, init=False)
    _told_s: float = field(default=float("-inf"), init=False)
    _failures: int = field(default=0, init=False)
    _standing: Mapping[SessionKey, Tokens[int]] = field(default_factory=dict, init=False)
    _load: tuple[int, int] = field(default=(-1, -1), init=False)
    _outlook: Outlook | None = field(default=None, init=False)
    _outlook_unix_ms: float = field(default=float("-inf"), init=False)
    _outlook_load: tuple[int, int] = field(default=(-1, -1), init=False)
    _step_since_s: float | None = field(default=None, init=False)  # monotonic; None between steps

    # --- from any thread

    def add(self, job: Job) -> None:
        self._mail.append(job)
        self._wake.set()

    def cancel(self, request_id: str) -> None:
        self._mail.append(request_id)
        self._wake.set()

    def forget(self, session: SessionKey) -> None:
        """Forget a conversation that was erased: nothing that a slot holds of it is used again."""
        self._mail.append(session)
        self._wake.set()

    def standing(self, session: SessionKey) -> Tokens[int]:
        """Return the tokens of a conversation that a slot still holds, while nothing else is under way that may take
        it."""
        return () if self._mail else self._standing.get(session, ())

    def stop(self) -> None:
        """`run` returns after its step."""
        self._stopped = True
        self._wake.set()

    @property
    def num_waiting(self) -> int:
        """Sequences without a slot, those still in the mailbox included."""
        return self.scheduler.num_waiting + len(self._mail)

    @property
    def outlook(self) -> Outlook | None:
        """Return what a request that came now could expect, as of a moment ago; None while a step is overdue: there is
        no saying."""
        return None if self._passed_s >= self.step_limit_s * _OVERDUE else self._outlook

    def stuck(self) -> str | None:
        """Return what to say of an engine whose step does not end; None while steps end."""
        passed_s = self._passed_s
        if passed_s < self.step_limit_s:
            return None
        return f"an engine step has not ended for {passed_s:.0f} s: this worker ends"

    @property
    def _passed_s(self) -> float:
        """Since the step under way began."""
        since_s = self._step_since_s
        return 0.0 if since_s is None else monotonic_s() - since_s

    def missing(self) -> str | None:
        """Return why the engine cannot be used, for `/ready`."""
        return self.stuck()

    async def serve(self) -> None:
        """Compute on a thread of its own until cancelled. Raises what `run` does."""
        thread = EngineThread(self.run)
        try:
            await thread.ended()
        finally:
            self.stop()
            if self.stuck() is None:
                await thread.wait(_LAST_STEP_S)

    # --- on the engine's thread

    def run(self) -> None:
        """Run until `stop`. Raises `EngineError` when the engine keeps failing, without an answer in between, and
        whatever else does."""
        while not self._stopped:
            if not self.turn():
                self._wake.wait(self._wait_s())
                self._wake.clear()

    def turn(self) -> bool:
        """Plan a step, compute it, take it in; False where there is nothing to compute. Raises what keeps failing."""
        self._step_since_s = monotonic_s()
        try:
            return self._turn()
        except Exception as error:  # noqa: BLE001 - counted and logged; whose fault it is nobody can tell
            self._fail(error)
            return True
        finally:
            self._step_since_s = None

    def _turn(self) -> bool:
        start = monotonic_s()
        step = self.next_step()
        if step is None:
            self._tell_all()
            return False
        _schedule_time.observe(monotonic_s() - start)
        result = run_step(self.engine, step, self.keep)
        computed = monotonic_s()
        self.take_in(step, result)
        _complete_time.observe(monotonic_s() - computed)
        return True

    def next_step(self) -> Step | None:
        """Read the mail, take out what is cancelled, too late or given up, and plan."""
        now = now_unix_ms()
        while self._mail:
            mail = self._mail.popleft()
            try:
                self._read(mail, now)
            except Exception as error:  # noqa: BLE001 - counted and logged; the others' mail is read
                self._give_up(mail.id if isinstance(mail, Job) else "", error)
        for finished in self.scheduler.sweep(now):
            self._end(finished)
        if self._news:
            self._tell_all()  # a step may take long
        step = self.scheduler.next_step(now)
        self._standing = self.scheduler.standing() if step is None else _NOTHING
        load = self.scheduler.num_waiting, self.scheduler.num_running
        if load != self._load:
            self._load = load
            metrics.load.labels("waiting").set(load[0])
            metrics.load.labels("used").set(load[1])
        every_ms = _OUTLOOK_EVERY_MS if load == self._outlook_load else _OUTLOOK_CHANGED_MS
        if step is None or not 0 <= now - self._outlook_unix_ms < every_ms:
            self._outlook, self._outlook_unix_ms, self._outlook_load = self.scheduler.outlook(now), now, load
            self.changed()
        return step

    def _read(self, mail: Job | str | SessionKey, now: float) -> None:
        if isinstance(mail, Job):
            self._jobs[mail.id] = mail
            self.scheduler.add(mail.sequence, now)
        elif isinstance(mail, SessionKey):
            self.scheduler.forget(mail)
        else:
            self.scheduler.cancel(mail)

    def _wait_s(self) -> float | None:
        """Return the time until the scheduler may have a step though nothing comes; None: for as long as nothing
        comes."""
        wake_unix_ms = self.scheduler.wake_unix_ms()
        return None if wake_unix_ms is None else max(0.0, (wake_unix_ms - now_unix_ms()) / 1_000)

    def take_in(self, step: Step, result: StepResult) -> None:
        """Turn what the engine sampled into text, and tell what is due."""
        _count(step, result)
        with contained("task"):
            self._learn(step, result)
        spoiled = self.scheduler.rows_in(result.spoiled)
        events = self.scheduler.complete(step, result.prefill_tokens, result.decode_tokens, now_unix_ms())
        for sequence in spoiled:
            sequence.begin_with(Prefix())
        for event in events:
            try:
                self._take(event)
            except Exception as error:  # noqa: BLE001 - counted and logged; the other rows' tokens are taken in
                self._give_up(event.sequence.request_id, error)
        for job in [job for job in self._touched.values() if job.answer.stopped]:
            with contained("answer", request_id=job.id):
                self.scheduler.finish(job.sequence)
            self._end(Finished(job.sequence, "completed", "stop"))
        urgent = bool(self._news) or any(job.answer.begins for job in self._touched.values())
        if urgent or monotonic_s() - self._told_s >= self.interval_s:
            self._tell_all()

    def _take(self, event: Token | Finished) -> None:
        job = self._jobs.get(event.sequence.request_id)
        if job is None:
            return  # given up at an earlier event of this step
        if isinstance(event, Token):
            job.answer.add(event.token_id)
            self._touched[job.id] = job
            if job.sequence.shown_unix_ms is None and job.answer.text:
                self.scheduler.shown(job.sequence, now_unix_ms())
            return
        self._failures = 0  # an answer came to its own end: the device works
        # The last token allowed may also complete a stop string, or a circle that the guard cuts.
        self._end(Finished(job.sequence, "completed", "stop") if job.answer.stopped else event)

    def _learn(self, step: Step, result: StepResult) -> None:
        """Learn from what the calls took, against what was predicted."""
        if step.decode:
            ms = result.decode_s * 1_000
            predicted_ms = self.costs.observe_decode(
                ms, rows=len(step.decode), context=sum([row.past for row in step.decode])
            )
            _decode_ratio.observe(ms / predicted_ms)
        if step.prefill:
            ms = result.prefill_s * 1_000
            rows = len(step.prefill)
            tokens = rows * max([len(chunk.token_ids) for chunk in step.prefill])
            predicted_ms = self.costs.observe_prefill(ms, tokens=tokens, past=step.prefill[0].past, rows=rows)
            _prefill_ratio.observe(ms / predicted_ms)

    def _end(self, finished: Finished) -> None:
        job = self._jobs.pop(finished.sequence.request_id)
        self._touched.pop(job.id, None)
        with contained("answer", request_id=job.id) as finishing:
            if job.sequence.shown_unix_ms is not None or not finished.unmet:
                job.answer.finish(whole=finished.reason == "stop")
        if finishing.error is not None:
            job.faulty = True
            finished = Finished(job.sequence, "failed", "internal")
        self._news.append(Ended(job, finished))

    def _give_up(self, request_id: str, error: Exception) -> None:
        """Give up an answer by a fault of our own: it ends as failed, with the text that it has."""
        caught("answer", error, request_id=request_id)
        job = self._jobs.pop(request_id, None)
        if job is None:
            return
        self._touched.pop(request_id, None)
        with contained("answer", request_id=request_id):
            self.scheduler.drop(job.sequence)
        job.faulty = True
        self._news.append(Ended(job, Finished(job.sequence, "failed", "internal")))

    def _fail(self, error: Exception) -> None:
        """Fail what the device holds: it failed, or what goes by all sequences: what stands in the slots ends, what
        waits gets its turn. Raises what has failed too often."""
        self._failures += 1
        told = isinstance(error, EngineError)
        if not told:
            caught("task", error)
        self.scheduler.finish_running()
        ended = [job for job in self._jobs.values() if job.id not in self.scheduler]
        cause = str(error) if told else type(error).__name__
        get_logger().error("engine_failed", cause=cause, sequences=len(ended), failures_in_a_row=self._failures)
        for job in ended:
            self._end(Finished(job.sequence, "failed", "internal"))
        self._tell_all()
        if self._failures >= _MAX_FAILURES:
            raise error

    def _tell_all(self) -> None:
        news: list[News] = []
        for job in list(self._touched.values()):
            try:
                delta = job.answer.take_delta()
            except Exception as error:  # noqa: BLE001 - counted and logged; the others' text is told
                self._give_up(job.id, error)
                continue
            if delta is not None:
                news.append(Said(job, delta))
        news += self._news
        self._touched.clear()
        self._news = []
        if news:
            self._told_s = monotonic_s()
            self.tell(news)


def _count(step: Step, result: StepResult) -> None:
    if step.prefill:
        _prefill_time.observe(result.prefill_s)
        lengths = [len(chunk.token_ids) for chunk in step.prefill]
        _prompt_tokens.inc(sum(lengths))
        _padding_tokens.inc(len(lengths) * max(lengths) - sum(lengths))
    if step.decode:
        _decode_time.observe(result.decode_s)
    if step.transfers:
        _transfer_time.observe(result.transfer_s)
    _output_tokens.inc(len(step.decode) + sum(token is not None for token in result.prefill_tokens))
