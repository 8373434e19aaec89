"""Virtual time: the worker's loop over its real scheduler, with an engine that only returns how long a step took.

The gateway decides about a request when it arrives, also during a step; the worker sees it before the next step, as in
`workers/serving/engine_loop.py`. The gateway's timers end an answer at its deadline, even if the worker notices later.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, Protocol

from ops.traces.trace import Request, Trace
from ops.virtual_worker.gate import Gate
from ops.virtual_worker.virtual_engine import SimulatedSequence, VirtualEngine
from shared.wire.deadline import Deadline
from shared.wire.session_key import SessionKey
from workers.engine import Sampling
from workers.schedule.scheduler import EngineStep, Scheduler
from workers.schedule.sequence import Finished
from workers.schedule.work import Work

_GREEDY: Final = Sampling()
_MOST_IDLE_STEPS: Final = 1_000
_NEVER: Final = Deadline(first_token_unix_ms=2**53, deadline_unix_ms=2**53)


class Learns(Protocol):
    """A cost model that learns from the durations of calls."""

    def observe(self, ms: float, work: Work) -> float: ...


class SimulatedOutcome(Enum):
    """The outcome of a request. `LATE`: a model's answer that was cut at, or ended after, one of its deadlines."""

    IN_DEADLINE = auto()
    LATE = auto()
    FALLBACK = auto()
    REFUSED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """One request's end. Times in ms from the trace's start; `num_rows` counts the rows of steps spent on it.

    `released_ms` is when the worker released it. For a request that was too late, this shows how late the worker
    noticed.
    """

    request: Request
    outcome: SimulatedOutcome
    first_token_ms: float | None
    released_ms: float
    num_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A trace's endings in its order, and what the engine did."""

    endings: Sequence[Ending]
    busy_ms: float
    rows_histogram: dict[int, int]

    def ttfts_ms(self) -> list[float]:
        """Return the time to the first token of every answer that the model began, in order of size."""
        return sorted(
            ending.first_token_ms - ending.request.arrival_ms
            for ending in self.endings
            if ending.first_token_ms is not None
        )

    def busy(self, trace: Trace) -> float:
        """Return the engine's share of the time."""
        return round(self.busy_ms / self.span_ms(trace), 4)

    def span_ms(self, trace: Trace) -> float:
        """Return the time from the trace's start to its last arrival or release."""
        return max([1.0, trace.span_ms, *(ending.released_ms for ending in self.endings)])


@dataclass(slots=True, kw_only=True)
class Simulator:
    """One worker, and its gateway if `gate` is given; otherwise the worker gets every request.

    `learns` gets the durations of the calls. `hints`: the scheduler knows each answer's true length. `deadlines`: the
    scheduler knows the deadlines; otherwise it serves late requests too.
    """

    trace: Trace
    scheduler: Scheduler
    engine: VirtualEngine
    gate: Gate | None = None
    learns: Learns | None = None
    hints: bool = True
    deadlines: bool = True
    _endings: list[Ending | None] = field(default_factory=list)
    _mail: list[SimulatedSequence] = field(default_factory=list)
    _offered: int = 0
    _now_ms: float = 0.0
    _busy_ms: float = 0.0

    def run(self) -> Run:
        """Run until every request has ended."""
        self._endings = [None] * len(self.trace.requests)
        self._take_arrivals()
        idle_steps = 0
        while True:
            step = self._next_step()
            if step is not None:
                self._compute(step)
                idle_steps = 0
                continue
            wake_ms = self._wake_ms()
            if wake_ms is None:
                break
            idle_steps += 1
            assert idle_steps < _MOST_IDLE_STEPS, "the scheduler has work, and does none of it"
            self._now_ms = wake_ms
            self._take_arrivals()
        return self._result()

    def _take_arrivals(self) -> None:
        """Take the requests that have arrived. The gateway decides at each one's arrival time; accepted requests are
        put into the mailbox."""
        requests = self.trace.requests
        while self._offered < len(requests) and requests[self._offered].arrival_ms <= self._now_ms:
            index, request = self._offered, requests[self._offered]
            self._offered += 1
            deadline = deadline_of(request)
            verdict = self.gate.decide(str(index), request, deadline) if self.gate is not None else "accept"
            if verdict == "accept":
                self._mail.append(sequence_of(index, request, deadline if self.deadlines else _NEVER, hints=self.hints))
                continue
            self._endings[index] = Ending(
                request=request,
                outcome=SimulatedOutcome.FALLBACK if verdict == "fallback" else SimulatedOutcome.REFUSED,
                first_token_ms=None,
                released_ms=request.arrival_ms,
                num_rows=0,
            )

    def _next_step(self) -> EngineStep | None:
        for sequence in self._mail:
            self.scheduler.add(sequence, self._now_ms)
        self._mail.clear()
        for finished in self.scheduler.sweep(self._now_ms):
            self._end(finished)
        step = self.scheduler.next_step(self._now_ms)
        if self.gate is not None:
            self.gate.report(self.scheduler, self._now_ms)
        return step

    def _compute(self, step: EngineStep) -> None:
        computed = self.engine.run(step)
        took_ms = computed.took_ms + self.engine.costs.step_overhead_ms
        self._now_ms += took_ms
        self._busy_ms += took_ms
        if self.learns is not None:
            for ms, work in computed.calls:
                self.learns.observe(ms, work)
        self._take_arrivals()
        events = self.scheduler.complete(step, computed.prefill_tokens, computed.decode_tokens, self._now_ms)
        self._show(step)
        for finished in [event for event in events if isinstance(event, Finished)]:
            self._end(finished)
            self.engine.ended(finished.sequence, last=not self.scheduler.num_running)

    def _show(self, step: EngineStep) -> None:
        """Show the first texts that come with this step's tokens."""
        for sequence in (*step.decoded, *step.prefilled):
            if sequence.shown_unix_ms is None and sequence.output_ids:
                assert isinstance(sequence, SimulatedSequence)
                if len(sequence.output_ids) >= shown_tokens(sequence.request):
                    self.scheduler.shown(sequence, self._now_ms)
            if self.gate is not None and sequence.shown_unix_ms == self._now_ms:
                self.gate.record_first_reply(sequence.request_id, self._now_ms)

    def _end(self, finished: Finished) -> None:
        sequence = finished.sequence
        assert isinstance(sequence, SimulatedSequence)
        if self.gate is not None:
            self.gate.ended(sequence.request_id, self._now_ms)
        self._endings[sequence.index] = Ending(
            request=sequence.request,
            outcome=outcome_of(sequence, finished, self._now_ms),
            first_token_ms=first_text_ms(sequence, finished, self._now_ms),
            released_ms=self._now_ms,
            num_rows=sequence.num_chunks + max(0, sequence.computed - sequence.request.prompt_tokens),
        )

    def _wake_ms(self) -> float | None:
        """Return the next arrival, or the time that the scheduler wants to be asked again; None: nothing is left."""
        requests = self.trace.requests
        arrival_ms = requests[self._offered].arrival_ms if self._offered < len(requests) else None
        window_ms = self.scheduler.wake_unix_ms()
        coming = [max(at, self._now_ms) for at in (arrival_ms, window_ms) if at is not None]
        return min(coming, default=None)

    def _result(self) -> Run:
        endings = [ending for ending in self._endings if ending is not None]
        assert len(endings) == len(self.trace.requests), "the scheduler holds requests and does not say until when"
        return Run(
            endings=endings,
            busy_ms=self._busy_ms,
            rows_histogram=dict(sorted(self.engine.rows_histogram.items())),
        )


def deadline_of(request: Request) -> Deadline:
    return Deadline.after(request.arrival_ms, first_token_ms=request.first_token_ms, whole_ms=request.deadline_ms)


def sequence_of(index: int, request: Request, deadline: Deadline, *, hints: bool) -> SimulatedSequence:
    """Return a request as a sequence for the scheduler. With `hints` it has the answer's true length."""
    sequence = SimulatedSequence(
        request_id=str(index),
        prompt_ids=range(request.prompt_tokens),
        max_output_tokens=request.max_output_tokens,
        sampling=_GREEDY,
        deadline=deadline,
        arrived_unix_ms=request.arrival_ms,
        bucket=request.bucket,
        session=SessionKey(request.tenant, ""),
        held=shown_tokens(request) > 1,
        request=request,
        index=index,
        num_sampled=request.num_decodes + 1,
    )
    sequence.weight = request.weight
    sequence.output_hint = sequence.num_sampled if hints else None
    return sequence


def outcome_of(sequence: SimulatedSequence, finished: Finished, now_ms: float) -> SimulatedOutcome:
    if finished.reason in {"stop", "max_output_tokens"}:
        deadline, first_ms = deadline_of(sequence.request), first_text_ms(sequence, finished, now_ms)
        assert first_ms is not None
        in_time = now_ms < deadline.deadline_unix_ms and first_ms < deadline.first_token_unix_ms
        return SimulatedOutcome.IN_DEADLINE if in_time else SimulatedOutcome.LATE
    return SimulatedOutcome.FALLBACK if sequence.shown_unix_ms is None else SimulatedOutcome.LATE


def first_text_ms(sequence: SimulatedSequence, finished: Finished, now_ms: float) -> float | None:
    """When its first text was shown; what was held back is shown with its end."""
    whole = finished.reason in {"stop", "max_output_tokens"}
    return now_ms if sequence.shown_unix_ms is None and whole else sequence.shown_unix_ms


def shown_tokens(request: Request) -> int:
    return request.shown_tokens or 1
