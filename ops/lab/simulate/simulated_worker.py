"""One of several workers in virtual time: its own scheduler and engine, and its reports to its gateway."""

from dataclasses import dataclass, field

from ops.virtual_worker.gate import Gate
from ops.virtual_worker.simulator import shown_tokens
from ops.virtual_worker.virtual_engine import Computed, SimulatedSequence, VirtualEngine
from workers.schedule.scheduler import EngineStep, Scheduler
from workers.schedule.sequence import Finished


@dataclass(slots=True, kw_only=True, eq=False)
class SimulatedWorker:
    """`gate` passes on its reports, `mail` has the accepted requests, and `step` is computed until `ends_ms`. The
    caller of `take_mail` and `complete` calls `end` for each request that they return."""

    scheduler: Scheduler
    engine: VirtualEngine
    gate: Gate
    mail: list[SimulatedSequence] = field(default_factory=list)
    step: tuple[EngineStep, Computed] | None = None
    ends_ms: float = 0.0

    def take_mail(self, now_ms: float) -> list[Finished]:
        """Pass the mail to the scheduler; return the requests that it gives up."""
        for sequence in self.mail:
            self.scheduler.add(sequence, now_ms)
        self.mail.clear()
        return self.scheduler.sweep(now_ms)

    def begin(self, step: EngineStep, now_ms: float, *, times: float = 1.0) -> float:
        """Begin a step and return its duration. Its calls take `times` as long as on a machine that the worker does not
        share."""
        computed = self.engine.run(step).slower(times)
        took_ms = computed.took_ms + self.engine.costs.step_overhead_ms
        self.step, self.ends_ms = (step, computed), now_ms + took_ms
        return took_ms

    def complete(self, now_ms: float) -> list[Finished]:
        """Complete the current step; return the requests that end with it."""
        assert self.step is not None
        (step, computed), self.step = self.step, None
        events = self.scheduler.complete(step, computed.prefill_tokens, computed.decode_tokens, now_ms)
        for sequence in (*step.decoded, *step.prefilled):
            assert isinstance(sequence, SimulatedSequence)
            if sequence.shown_unix_ms is None and len(sequence.output_ids) >= shown_tokens(sequence.request):
                self.scheduler.shown(sequence, now_ms)
                self.gate.record_first_reply(sequence.request_id, now_ms)
        ended = [event for event in events if isinstance(event, Finished)]
        for finished in ended:
            self.engine.ended(finished.sequence, last=not self.scheduler.num_running)
        return ended

    def end(self, finished: Finished, now_ms: float) -> SimulatedSequence:
        """Report to the gateway that a request has ended; return its sequence."""
        sequence = finished.sequence
        assert isinstance(sequence, SimulatedSequence)
        self.gate.ended(sequence.request_id, now_ms)
        return sequence
