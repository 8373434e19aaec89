"""Traces under policies, one simulation after the other."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from gateway.destination.admission import AdmissionPolicy
from gateway.destination.ladder import Ladder
from gateway.destination.lanes import LaneAdmissions
from ops.lab.simulate.bound import ScheduleBound, upper_bound
from ops.lab.simulate.ladder import LadderSimulator, LadderWorker
from ops.lab.simulate.recorded import read_trace
from ops.lab.simulate.rivals import IGNORES_DEADLINES, LADDER, OURS, POLICIES, RESERVE, WHOLE_BATCHES, scheduler_of
from ops.lab.simulate.rows import SimulationRow, Subject, bound_row, row_of
from ops.traces.costs import EngineCosts
from ops.traces.drawn import KINDS
from ops.traces.trace import Trace
from ops.virtual_worker.experiment import Experiment
from ops.virtual_worker.gate import Gate
from ops.virtual_worker.simulator import Simulator
from ops.virtual_worker.virtual_engine import VirtualEngine
from shared.versions.state import State
from shared.wire.lanes import Lane
from workers.schedule.costs import CostModel

BOUND: Final = "bound"
ALL_POLICIES: Final = (BOUND, *POLICIES)
KNOWN_POLICIES: Final = (*ALL_POLICIES, RESERVE, LADDER)


class Comparison(Experiment, frozen=True, kw_only=True):
    """Policies to compare on traces. A None in `loads` means a recorded trace at its recorded speed.

    `light` is the cost of the ladder's light model, as a share of the champion's.
    """

    traces: tuple[str, ...] = ()
    loads: tuple[float | None, ...] = ()
    policies: tuple[str, ...] = ()
    light: float = 0.25

    @property
    def num_runs(self) -> int:
        return len(self.traces) * len(self.loads) * len(self.policies)

    def run(self, tell: Callable[[int], None]) -> list[SimulationRow]:
        """Return the rows by trace, load and policy. `tell` is called with the number of rows after each."""
        rows: list[SimulationRow] = []
        for name in self.traces:
            for load in self.loads:
                trace = self._trace(name, load)
                for row in self._rows(trace):
                    rows.append(row)
                    tell(len(rows))
        return rows

    def _rows(self, trace: Trace) -> Iterator[SimulationRow]:
        bound: ScheduleBound | None = None
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
        return self.trace(name, load)

    def _subject(self, trace: Trace, policy: str, bound: ScheduleBound | None) -> Subject:
        return Subject(trace=trace, policy=policy, lengths=self.lengths, least=self.least, bound=bound)

    def _simulate(self, subject: Subject) -> SimulationRow:
        ladder = self.ladder_simulator(subject.trace) if subject.policy == LADDER else None
        simulator = ladder or self.policy_simulator(subject.trace, subject.policy)
        start_s = time.perf_counter()
        run = simulator.run()
        real_s = time.perf_counter() - start_s
        row = row_of(subject, run, real_s=real_s)
        return row if ladder is None else msgspec.structs.replace(row, by_lane=dict(ladder.by_lane))

    def ladder_simulator(self, trace: Trace) -> LadderSimulator:
        """Return the simulator of one trace with a champion's and a light worker."""
        costs: dict[Lane, list[EngineCosts]] = {"champion": [self.costs], "light": [self.costs.times(self.light)]}
        return self.lanes_simulator(trace, costs)

    def lanes_simulator(
        self, trace: Trace, costs_of: Mapping[Lane, Sequence[EngineCosts]], state: State | None = None
    ) -> LadderSimulator:
        """Return the simulator of one trace with a worker for each of a lane's costs. With a `state` that names their
        rule each worker runs on a separate machine."""
        limits, admissions = Gate.of(self.settings).limits, LaneAdmissions(AdmissionPolicy(enabled=self.admission))
        workers = []
        for lane, number, costs in [(of, *each) for of, all_of in costs_of.items() for each in enumerate(all_of)]:
            model, name = CostModel.from_state(costs.table), f"{lane}/{number}" if number else lane
            scheduler = scheduler_of(OURS, limits=self.limits, costs=model, lengths=self.history(trace.name))
            engine = VirtualEngine(costs, self.noise, Random(f"engine/{name}/{self.seed}"))  # noqa: S311 - a load
            own = Gate(admission=admissions.of(lane), limits=limits, worker_id=name, partitions=(number,))
            workers.append(LadderWorker(lane=lane, scheduler=scheduler, engine=engine, learns=model, gate=own))
        return LadderSimulator(
            trace=trace,
            workers=workers,
            admissions=admissions,
            ladder=Ladder(),
            hints=self.lengths == "known",
            state=state or State(),
            is_shared=state is None,
        )

    def policy_simulator(self, trace: Trace, policy: str) -> Simulator:
        """Return the simulator of one trace under one policy; ours has a window where the settings say so."""
        if policy == OURS:
            return self.simulator(trace)
        model = self.cost_model()
        return Simulator(
            trace=trace,
            scheduler=scheduler_of(policy, limits=self.limits, costs=model, lengths=self.history(trace.name)),
            engine=self.engine(whole_batches=policy in WHOLE_BATCHES),
            gate=Gate.of(self.settings) if self.admission and policy == RESERVE else None,
            learns=model if self.noise else None,
            hints=self.lengths == "known",
            deadlines=policy not in IGNORES_DEADLINES,
        )
