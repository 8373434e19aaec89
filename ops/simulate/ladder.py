"""Virtual time with the ladder: a champion's worker and a light one on the same cores, and the gateway before them.

While both compute, a step takes twice as long. A request that the champion's scheduler gives up is placed again, as
`gateway/serving/descending.py` does.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gateway.admission.ladder import Step as Rung
from gateway.admission.placement import Asked, Placement
from ops.simulate.gate import Gate
from ops.simulate.simulator import (
    Ending,
    Learns,
    Run,
    SimulatedOutcome,
    deadline_of,
    first_text_ms,
    outcome_of,
    sequence_of,
    shown_tokens,
    teach,
)
from ops.simulate.virtual_engine import Computed, SimulatedSequence, VirtualEngine
from ops.traces.trace import Request, Trace
from shared.wire.lanes import CHAMPION
from shared.wire.session_key import SessionKey
from workers.schedule.scheduler import Scheduler, Step
from workers.schedule.sequence import Finished

_PARTITION: Final = 0


@dataclass(slots=True, kw_only=True)
class SimulatedWorker:
    """One lane's worker. `gate` passes on its reports; `step` is computed until `ends_ms`."""

    lane: Rung
    scheduler: Scheduler
    engine: VirtualEngine
    learns: Learns
    gate: Gate
    mail: list[SimulatedSequence] = field(default_factory=list)
    step: tuple[Step, Computed] | None = None
    ends_ms: float = 0.0


@dataclass(slots=True, kw_only=True)
class LadderSimulator:
    """`workers` from the top of the ladder down."""

    trace: Trace
    workers: Sequence[SimulatedWorker]
    placement: Placement
    hints: bool = True
    by_lane: Counter[str] = field(default_factory=Counter)
    _endings: list[Ending | None] = field(default_factory=list)
    _offered: int = 0
    _busy_ms: float = 0.0

    def run(self) -> Run:
        """Run until every request has ended; `by_lane` then counts the answers in time."""
        self._endings = [None] * len(self.trace.requests)
        while (now_ms := self._next_ms()) is not None:
            for worker in self.workers:
                if worker.step is not None and worker.ends_ms <= now_ms:
                    self._complete(worker, now_ms)
            while self._offered < len(self.trace.requests) and self._arrival_ms() <= now_ms:
                self._place(self._offered)
                self._offered += 1
            for worker in self.workers:
                if worker.step is None:
                    self._begin(worker, now_ms)
        endings = [ending for ending in self._endings if ending is not None]
        assert len(endings) == len(self.trace.requests), "a scheduler holds requests and does nothing"
        return Run(endings=endings, busy_ms=self._busy_ms, rows_histogram=self.workers[0].engine.rows_histogram)

    def _arrival_ms(self) -> float:
        return self.trace.requests[self._offered].arrival_ms

    def _next_ms(self) -> float | None:
        ends = [worker.ends_ms for worker in self.workers if worker.step is not None]
        arrivals = [self._arrival_ms()] if self._offered < len(self.trace.requests) else []
        return min([*ends, *arrivals], default=None)

    def _place(self, index: int) -> None:
        request = self.trace.requests[index]
        lane, decision = self.placement.place(_asked(index, request), CHAMPION, request.arrival_ms)
        if decision.light is None:
            self._post(index, lane)
        else:
            self._endings[index] = Ending(
                request=request,
                outcome=SimulatedOutcome.FALLBACK,
                first_token_ms=None,
                released_ms=request.arrival_ms,
                num_rows=0,
            )

    def _post(self, index: int, lane: str) -> None:
        request = self.trace.requests[index]
        [worker] = [each for each in self.workers if each.lane == lane]
        worker.mail.append(sequence_of(index, request, deadline_of(request), hints=self.hints))

    def _begin(self, worker: SimulatedWorker, now_ms: float) -> None:
        for sequence in worker.mail:
            worker.scheduler.add(sequence, now_ms)
        worker.mail.clear()
        for finished in worker.scheduler.sweep(now_ms):
            self._end(worker, finished, now_ms)
        step = worker.scheduler.next_step(now_ms)
        worker.gate.report(worker.scheduler, now_ms)
        if step is None:
            return
        computed = worker.engine.run(step)
        shared = 1 + sum(other.step is not None for other in self.workers)
        computed = replace(computed, prefill_ms=computed.prefill_ms * shared, decode_ms=computed.decode_ms * shared)
        took_ms = computed.prefill_ms + computed.decode_ms + worker.engine.costs.step_overhead_ms
        worker.step, worker.ends_ms = (step, computed), now_ms + took_ms
        self._busy_ms += took_ms / shared
        teach(worker.learns, step, computed)

    def _complete(self, worker: SimulatedWorker, now_ms: float) -> None:
        assert worker.step is not None
        (step, computed), worker.step = worker.step, None
        scheduler = worker.scheduler
        events = scheduler.complete(step, computed.prefill_tokens, computed.decode_tokens, now_ms)
        for sequence in (*step.decoded, *step.prefilled):
            assert isinstance(sequence, SimulatedSequence)
            if sequence.shown_unix_ms is None and len(sequence.output_ids) >= shown_tokens(sequence.request):
                scheduler.shown(sequence, now_ms)
                worker.gate.heard(sequence.request_id, now_ms)
        for finished in [event for event in events if isinstance(event, Finished)]:
            self._end(worker, finished, now_ms)
            worker.engine.ended(finished.sequence, last=not scheduler.num_running)

    def _end(self, worker: SimulatedWorker, finished: Finished, now_ms: float) -> None:
        sequence = finished.sequence
        assert isinstance(sequence, SimulatedSequence)
        worker.gate.ended(sequence.request_id, now_ms)
        if finished.reason == "infeasible" and sequence.shown_unix_ms is None:
            placed = self.placement.place_below(_asked(sequence.index, sequence.request), worker.lane, now_ms)
            if placed is not None:
                self._post(sequence.index, placed[0])
                return
        outcome = outcome_of(sequence, finished, now_ms)
        self.by_lane[worker.lane] += outcome is SimulatedOutcome.IN_DEADLINE
        self._endings[sequence.index] = Ending(
            request=sequence.request,
            outcome=outcome,
            first_token_ms=first_text_ms(sequence, finished, now_ms),
            released_ms=now_ms,
            num_rows=sequence.num_chunks + max(0, sequence.computed - sequence.request.prompt_tokens),
        )


def _asked(index: int, request: Request) -> Asked:
    return Asked(
        request_id=str(index),
        session=SessionKey(request.tenant, request.session or str(index)),
        bucket=request.bucket,
        deadline=deadline_of(request),
        partition_of=lambda _: _PARTITION,
        received_unix_ms=request.arrival_ms,
    )
