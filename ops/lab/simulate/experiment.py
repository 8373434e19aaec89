"""Traces under policies, one simulation after the other."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final, Literal

import msgspec
from msgspec import Struct

from gateway.destination.admission import AdmissionPolicy
from gateway.destination.ladder import Ladder
from gateway.destination.ladder import Step as Rung
from gateway.destination.lanes import LaneAdmissions
from ops.lab.simulate.bound import Bound, upper_bound
from ops.lab.simulate.gate import Gate
from ops.lab.simulate.ladder import LadderSimulator, LadderWorker
from ops.lab.simulate.recorded import read_trace
from ops.lab.simulate.rivals import IGNORES_DEADLINES, LADDER, OURS, POLICIES, RESERVE, WHOLE_BATCHES, scheduler_of
from ops.lab.simulate.rows import Row, Subject, bound_row, row_of
from ops.lab.simulate.simulator import Simulator
from ops.lab.simulate.virtual_engine import STOP, VirtualEngine
from ops.traces.costs import EngineCosts
from ops.traces.drawn import KINDS, make_trace
from ops.traces.least_work import LeastWork
from ops.traces.trace import Trace
from shared.settings import Settings
from workers.schedule.costs import CostModel
from workers.schedule.goodput import make_window
from workers.schedule.lengths import SHOWN, OutputLengths
from workers.schedule.scheduler import DECODE_STALL_MS, SchedulerLimits

Lengths = Literal["known", "predicted"]

BOUND: Final = "bound"
ALL_POLICIES: Final = (BOUND, *POLICIES)
KNOWN_POLICIES: Final = (*ALL_POLICIES, RESERVE, LADDER)
_MAX_PREFILL_ROWS: Final = 8
_EARLIER_LOAD: Final = 0.5
_EARLIER_S: Final = 120.0
_EARLIER_SEED: Final = 1_000_003


class Experiment(Struct, frozen=True, kw_only=True):
    """An experiment to simulate. A None in `loads` means a recorded trace at its recorded speed.

    `noise` is the standard deviation of each call's time, as a share; with noise the scheduler's cost model learns from
    the calls, otherwise it knows the table. `admission`: our policy gets only what the gateway's admission code
    accepts. `light` is the cost of the ladder's light model, as a share of the champion's.
    """

    traces: tuple[str, ...] = ()
    loads: tuple[float | None, ...] = ()
    policies: tuple[str, ...] = ()
    slots: int
    seconds: float = 0.0
    seed: int = 1
    lengths: Lengths = "predicted"
    costs: EngineCosts
    noise: float = 0.0
    admission: bool = True
    light: float = 0.25
    settings: Settings

    @property
    def least(self) -> LeastWork:
        chunk = self.settings.worker.prefill_chunk_tokens
        return LeastWork(costs=self.costs, num_slots=self.slots, prefill_chunk_tokens=chunk)

    @property
    def num_runs(self) -> int:
        return len(self.traces) * len(self.loads) * len(self.policies)

    def run(self, tell: Callable[[int], None]) -> list[Row]:
        """Return the rows by trace, load and policy. `tell` is called with the number of rows after each."""
        rows: list[Row] = []
        for name in self.traces:
            for load in self.loads:
                trace = self._trace(name, load)
                for row in self._rows(trace):
                    rows.append(row)
                    tell(len(rows))
        return rows

    def _rows(self, trace: Trace) -> Iterator[Row]:
        bound: Bound | None = None
        for policy in sorted(self.policies, key=KNOWN_POLICIES.index):
            if policy == BOUND:
                bound = upper_bound(trace, self.least)
                yield bound_row(self._subject(trace, BOUND, bound))
            else:
                yield self._simulate(self._subject(trace, policy, bound))

    def _trace(self, name: str, load: float | None) -> Trace:
        if name not in KINDS:
            return read_trace(Path(name), load=load, seed=self.seed, least=self.least)
        assert load is not None
        return make_trace(name, load=load, seconds=self.seconds, seed=self.seed, least=self.least)

    def _subject(self, trace: Trace, policy: str, bound: Bound | None) -> Subject:
        return Subject(trace=trace, policy=policy, lengths=self.lengths, least=self.least, bound=bound)

    def _simulate(self, subject: Subject) -> Row:
        ladder = self.ladder_simulator(subject.trace) if subject.policy == LADDER else None
        simulator = ladder or self.simulator(subject.trace, subject.policy)
        start_s = time.perf_counter()
        run = simulator.run()
        real_s = time.perf_counter() - start_s
        row = row_of(subject, run, real_s=real_s)
        return row if ladder is None else msgspec.structs.replace(row, by_lane=dict(ladder.by_lane))

    def ladder_simulator(self, trace: Trace) -> LadderSimulator:
        """Return the simulator of one trace with a champion's and a light worker."""
        gate = Gate.of(self.settings)
        admissions = LaneAdmissions(AdmissionPolicy(enabled=self.admission))
        costs_of: dict[Rung, EngineCosts] = {"champion": self.costs, "light": self.costs.times(self.light)}
        workers = []
        for lane, costs in costs_of.items():
            model = CostModel.from_state(costs.table)
            scheduler = scheduler_of(OURS, limits=self.limits, costs=model, lengths=self.history(trace.name))
            engine = VirtualEngine(costs, self.noise, Random(f"engine/{lane}/{self.seed}"))  # noqa: S311 - a load
            own = Gate(admission=admissions.of(lane), limits=gate.limits)
            workers.append(LadderWorker(lane=lane, scheduler=scheduler, engine=engine, learns=model, gate=own))
        return LadderSimulator(
            trace=trace, workers=workers, admissions=admissions, ladder=Ladder(), hints=self.lengths == "known"
        )

    def simulator(self, trace: Trace, policy: str) -> Simulator:
        """Return the simulator of one trace under one policy; ours has a window where the settings say so."""
        model = CostModel.from_state(self.costs.table)
        limits = self.limits
        random = Random(f"engine/{self.seed}")  # noqa: S311 - a load, not a secret
        return Simulator(
            trace=trace,
            scheduler=scheduler_of(
                policy,
                limits=limits,
                costs=model,
                lengths=self.history(trace.name),
                window=make_window(self.settings.worker.window, limits),
            ),
            engine=VirtualEngine(self.costs, self.noise, random, whole_batches=policy in WHOLE_BATCHES),
            gate=Gate.of(self.settings) if self.admission and policy in {OURS, RESERVE} else None,
            learns=model if self.noise else None,
            hints=self.lengths == "known",
            deadlines=policy not in IGNORES_DEADLINES,
        )

    def history(self, name: str) -> OutputLengths:
        """Return the answer lengths that a worker knows after it has run for a while: those of another, earlier trace
        of the kind."""
        lengths = OutputLengths()
        if name in KINDS:
            earlier = make_trace(
                name, load=_EARLIER_LOAD, seconds=_EARLIER_S, seed=self.seed + _EARLIER_SEED, least=self.least
            )
            for request in earlier.requests:
                whole = request.output_tokens < request.max_output_tokens
                lengths.observe(request.bucket, request.num_decodes + 1, ended_by_itself=whole)
                lengths.observe(SHOWN + request.bucket, request.shown_tokens or 1, ended_by_itself=True)
        return lengths

    @property
    def limits(self) -> SchedulerLimits:
        return SchedulerLimits(
            num_slots=self.slots,
            prefill_chunk_tokens=self.settings.worker.prefill_chunk_tokens,
            max_prefill_rows=_MAX_PREFILL_ROWS,
            stop_token_ids=frozenset({STOP}),
            decode_stall_ms=DECODE_STALL_MS,
            mixes=self.costs.table.key.mixes,
        )
