"""The engine's thread: steps as long as there is something to compute.

It owns the engine, the scheduler and the answers being written; nothing else touches them until an answer has ended.
What comes in (sequences, cancels) lies in a mailbox that is emptied before each step, so it takes effect within one.
What goes out is told in batches: an answer's first text and its end at once, all other text together every
`interval_s`, for on the way to the client each telling costs by itself, hardly by what is in it. No step waits for
the event loop, and no lock is needed: a deque's append and popleft are atomic.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field
from typing import Any, Final

from numpy.typing import NDArray

from shared import metrics
from shared.clock import now_unix_ms
from shared.errors import EngineError
from shared.logs import get_logger
from shared.messages import ReplyDelta
from shared.session_key import SessionKey
from workers.costs import CostModel
from workers.engine import Engine
from workers.job import Job
from workers.outlook import Outlook
from workers.scheduler import Scheduler, Step
from workers.sequence import Finished, Sequence, Token
from workers.slots import Export, Import, Move, Transfer

_MAX_FAILURES = 3
_NOTHING: Final[Mapping[SessionKey, Tokens[int]]] = {}
_OUTLOOK_EVERY_MS = 100.0
# No step takes as long: a device or its driver hangs, and the call may never return.
_STUCK_S: Final = 30.0

# Counted in every step.
_schedule_time = metrics.step_time.labels("schedule")
_transfer_time = metrics.step_time.labels("transfer")
_prefill_time, _decode_time = (metrics.step_time.labels(kind) for kind in ("prefill", "decode"))
_complete_time = metrics.step_time.labels("complete")
_prefill_steps, _decode_steps = (metrics.steps.labels(kind) for kind in ("prefill", "decode"))
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
Keep = Callable[[Sequence, int, NDArray[Any]], None]


@dataclass(frozen=True, slots=True)
class StepResult:
    """What the engine sampled, and how long each part of the step took."""

    prefill_tokens: list[int | None]
    decode_tokens: list[int]
    transfer_s: float
    prefill_s: float
    decode_s: float


def run_step(engine: Engine, step: Step, keep: Keep) -> StepResult:
    """Compute a step: transfers, decode, prefill. Raises `EngineError`."""
    start = time.perf_counter()
    transfer(engine, step.transfers, keep)
    moved = time.perf_counter()
    decoded = engine.decode(step.decode) if step.decode else []
    middle = time.perf_counter()
    prefilled = engine.prefill(step.prefill) if step.prefill else []
    return StepResult(
        prefilled,
        decoded,
        transfer_s=moved - start,
        prefill_s=time.perf_counter() - middle,
        decode_s=middle - moved,
    )


def transfer(engine: Engine, transfers: Iterable[Transfer], keep: Keep) -> None:
    """Carry out transfers in their order: each finds what those before it have left. Raises `EngineError`.

    What is exported is given to `keep` at once: its conversation's next question may be on its way.
    """
    for item in transfers:
        match item:
            case Move():
                engine.move(source=item.source, target=item.target, length=item.length)
            case Import():
                engine.import_kv(slot=item.slot, start=item.start, values=item.values)
            case Export():
                values = engine.export_kv(slot=item.slot, start=item.start, stop=item.stop)
                keep(item.sequence, item.start, values)


@dataclass(slots=True, kw_only=True)
class EngineLoop:
    """`tell` and `keep` are called on the engine's thread; `keep` takes the KV of a sequence that has ended, from a
    token on, after its end was told. `add`, `cancel`, `forget`, `standing`, `stop`, `num_waiting`, `outlook`, `stuck`
    may be used on any."""

    engine: Engine
    scheduler: Scheduler
    costs: CostModel
    tell: Callable[[list[News]], None]
    interval_s: float
    keep: Keep
    _mail: deque[Job | str | SessionKey] = field(default_factory=deque)
    _wake: threading.Event = field(default_factory=threading.Event)
    _stopped: bool = False
    _jobs: dict[str, Job] = field(default_factory=dict)
    _touched: dict[str, Job] = field(default_factory=dict)
    _news: list[News] = field(default_factory=list)
    _told_s: float = float("-inf")
    _failures: int = 0
    _standing: Mapping[SessionKey, Tokens[int]] = field(default_factory=dict)
    _load: tuple[int, int] = (-1, -1)
    _outlook: Outlook | None = None
    _outlook_unix_ms: float = float("-inf")
    _step_since_s: float | None = None  # monotonic; None between steps

    # --- from any thread

    def add(self, job: Job) -> None:
        self._mail.append(job)
        self._wake.set()

    def cancel(self, request_id: str) -> None:
        self._mail.append(request_id)
        self._wake.set()

    def forget(self, session: SessionKey) -> None:
        """A conversation was erased: nothing that a slot holds of it is used again."""
        self._mail.append(session)
        self._wake.set()

    def standing(self, session: SessionKey) -> Tokens[int]:
        """The tokens of a conversation that a slot still holds, while nothing else is under way that may take it."""
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
        """What a request that came now could expect, as of a moment ago; None while the engine is `stuck`: there is no
        saying."""
        return None if self.stuck() else self._outlook

    def stuck(self) -> str | None:
        """What to say of an engine whose step does not end; None while steps end."""
        since_s = self._step_since_s
        passed_s = 0.0 if since_s is None else time.monotonic() - since_s
        if passed_s < _STUCK_S:
            return None
        return f"an engine step has not ended for {passed_s:.0f} s; if it does not, end the process"

    # --- on the engine's thread

    def run(self) -> None:
        """Until `stop`. Raises `EngineError` when the engine keeps failing, without an answer in between."""
        while not self._stopped:
            start = time.perf_counter()
            step = self.next_step()
            if step is None:
                self._tell_all()
                self._wake.wait(self._wait_s())
                self._wake.clear()
                continue
            _schedule_time.observe(time.perf_counter() - start)
            self._step_since_s = time.monotonic()
            try:
                result = run_step(self.engine, step, self.keep)
            except EngineError as error:
                self._fail(error)
                continue
            finally:
                self._step_since_s = None
            computed = time.perf_counter()
            self.take_in(step, result)
            _complete_time.observe(time.perf_counter() - computed)

    def next_step(self) -> Step | None:
        """Read the mail, take out what is cancelled, too late or given up, and plan."""
        now = now_unix_ms()
        while self._mail:
            mail = self._mail.popleft()
            if isinstance(mail, Job):
                self._jobs[mail.id] = mail
                self.scheduler.add(mail.sequence, now)
            elif isinstance(mail, SessionKey):
                self.scheduler.forget(mail)
            else:
                self.scheduler.cancel(mail)
        for finished in self.scheduler.sweep(now):
            self._end(finished)
        step = self.scheduler.next_step(now)
        self._standing = self.scheduler.standing() if step is None else _NOTHING
        load = self.scheduler.num_waiting, self.scheduler.num_running
        if load != self._load:
            self._load = load
            metrics.waiting.set(load[0])
            metrics.slots_used.set(load[1])
        if step is None or not 0 <= now - self._outlook_unix_ms < _OUTLOOK_EVERY_MS:
            self._outlook, self._outlook_unix_ms = self.scheduler.outlook(now), now
        return step

    def _wait_s(self) -> float | None:
        """Until the scheduler may have a step though nothing comes; None: for as long as nothing comes."""
        wake_unix_ms = self.scheduler.wake_unix_ms()
        return None if wake_unix_ms is None else max(0.0, (wake_unix_ms - now_unix_ms()) / 1_000)

    def take_in(self, step: Step, result: StepResult) -> None:
        """What the engine sampled becomes text; what is due is told."""
        _count(step, result)
        self._learn(step, result)
        events = self.scheduler.complete(step, result.prefill_tokens, result.decode_tokens, now_unix_ms())
        for event in events:
            job = self._jobs[event.sequence.request_id]
            if isinstance(event, Token):
                job.answer.add(event.token_id)
                self._touched[job.id] = job
            else:
                self._failures = 0  # an answer came to its own end: the device works
                # The last token allowed may also complete a stop string, or a circle that the guard cuts.
                self._end(Finished(job.sequence, "completed", "stop") if job.answer.stopped else event)
        for job in [job for job in self._touched.values() if job.answer.stopped]:
            self.scheduler.finish(job.sequence)
            self._end(Finished(job.sequence, "completed", "stop"))
        urgent = bool(self._news) or any(job.answer.begins for job in self._touched.values())
        if urgent or time.monotonic() - self._told_s >= self.interval_s:
            self._tell_all()

    def _learn(self, step: Step, result: StepResult) -> None:
        """What the calls took, against what was predicted."""
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
        job.answer.finish(whole=finished.reason == "stop")
        self._news.append(Ended(job, finished))

    def _fail(self, error: EngineError) -> None:
        """The device failed: what stands in it ends, what waits gets its turn."""
        self._failures += 1
        ended = self.scheduler.finish_running()
        get_logger().error("engine_failed", cause=str(error), sequences=len(ended), failures_in_a_row=self._failures)
        for sequence in ended:
            self._end(Finished(sequence, "failed", "internal"))
        self._tell_all()
        if self._failures >= _MAX_FAILURES:
            raise error

    def _tell_all(self) -> None:
        deltas = [(job, job.answer.take_delta()) for job in self._touched.values()]
        news: list[News] = [Said(job, delta) for job, delta in deltas if delta is not None]
        news += self._news
        self._touched.clear()
        self._news = []
        if news:
            self._told_s = time.monotonic()
            self.tell(news)


def _count(step: Step, result: StepResult) -> None:
    if step.prefill:
        _prefill_steps.inc()
        _prefill_time.observe(result.prefill_s)
        lengths = [len(chunk.token_ids) for chunk in step.prefill]
        metrics.prompt_tokens.inc(sum(lengths))
        metrics.padding_tokens.inc(len(lengths) * max(lengths) - sum(lengths))
    if step.decode:
        _decode_steps.inc()
        _decode_time.observe(result.decode_s)
        metrics.batch_rows.observe(len(step.decode))
    if step.transfers:
        _transfer_time.observe(result.transfer_s)
    metrics.output_tokens.inc(len(step.decode) + sum(token is not None for token in result.prefill_tokens))
