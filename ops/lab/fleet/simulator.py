"""A fleet in virtual time: each worker's own scheduler, one admission in front of all of them, and a scaler.

Conversations are hashed to partitions, and the group's own assignment gives partitions to workers. A join or a leave
takes no time here; a worker that leaves gets no more requests and finishes those it has. The fallback answers requests
that admission rejects or that no worker can take.
"""

import heapq
import zlib
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random
from typing import Final

from gateway.destination.admission import Admission, AdmissionLimits, AdmissionPolicy
from ops.lab.fleet.load import Load
from ops.lab.fleet.pool import Machine, Pool
from ops.lab.fleet.watch import Watch, Workers
from ops.lab.simulate.rivals import OURS, scheduler_of
from ops.lab.simulate.simulated_worker import SimulatedWorker
from ops.scaling.autoscale.scaler import Scaler
from ops.traces.trace import Request
from ops.virtual_worker.experiment import Experiment
from ops.virtual_worker.gate import Gate
from ops.virtual_worker.simulator import SimulatedOutcome, deadline_of, outcome_of, sequence_of
from ops.virtual_worker.virtual_engine import VirtualEngine
from shared.wire.assignment import GroupMember, assign
from shared.wire.topics import BUCKETS
from workers.schedule.costs import CostModel
from workers.schedule.lengths import OutputLengths
from workers.schedule.sequence import Finished

PARTITIONS: Final = 24
_LOOK_MS: Final = 500.0


@dataclass(slots=True, kw_only=True, eq=False)
class FleetWorker(SimulatedWorker):
    """The worker of a machine, and its membership of the group."""

    machine: Machine
    member: GroupMember = field(default_factory=lambda: GroupMember(topics=frozenset(BUCKETS)))

    @property
    def idle(self) -> bool:
        return self.step is None and not self.mail and not self.scheduler.num_running + self.scheduler.num_waiting


@dataclass(slots=True, kw_only=True)
class Played:
    """The outcome of a load. By tick: requests asked, those that the model answered in time, machines kept."""

    pool: Pool
    span_ms: float
    asked: list[float]
    in_time: list[float]
    kept: list[int]

    @property
    def attainment(self) -> float:
        return sum(self.in_time) / max(sum(self.asked), 1e-9)

    @property
    def worker_hours(self) -> float:
        return self.pool.cost_ms(self.span_ms) / 3_600_000


@dataclass(slots=True, kw_only=True)
class FleetSimulator:
    """`run` plays the load once. `experiment` has the costs and the settings; its traces and policies are not used."""

    load: Load
    scaler: Scaler
    pool: Pool
    watch: Watch
    experiment: Experiment
    seen: list[tuple[float, float, float]] = field(default_factory=list)  # busy, running, waiting at each look
    _admission: Admission = field(init=False)
    _lengths: OutputLengths = field(init=False)
    _workers: dict[str, FleetWorker] = field(default_factory=dict)
    _leaving: dict[str, FleetWorker] = field(default_factory=dict)
    _readers: dict[int, FleetWorker] = field(default_factory=dict)
    _events: list[tuple[float, int, Callable[[float], None]]] = field(default_factory=list)
    _order: Iterator[int] = field(default_factory=count)
    _round: int = 0
    _arrived: int = 0
    _in_time: int = 0
    _busy_ms: float = 0.0
    _decides_ms: float = 0.0
    _played: Played = field(init=False)

    def run(self) -> Played:
        """Run until every request has ended."""
        ticks = len(self.load.per_s)
        self._played = Played(
            pool=self.pool, span_ms=self.load.span_ms, asked=[0.0] * ticks, in_time=[0.0] * ticks, kept=[0] * ticks
        )
        settings = self.experiment.settings
        self._admission = Admission(AdmissionPolicy(enabled=settings.admission.enabled))
        self._lengths = self.experiment.history("poisson")
        for machine in self.pool.machines:
            self._join(machine)
        self._assign(0.0)
        self._push(_LOOK_MS, self._look)
        arrivals = self.load.requests(self.experiment.seed, self.experiment.costs.promise)
        coming = next(arrivals, None)
        while coming is not None or self._events:
            if coming is not None and (not self._events or coming[0].arrival_ms <= self._events[0][0]):
                self._arrive(*coming)
                coming = next(arrivals, None)
                continue
            now_ms, _, act = heapq.heappop(self._events)
            act(now_ms)
        return self._played

    def _push(self, at_ms: float, act: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (at_ms, next(self._order), act))

    # --- the fleet's size

    def _look(self, now_ms: float) -> None:
        """Send the reports of idle workers, and call the scaler if it is due."""
        for worker in list(self._workers.values()):
            if worker.step is None:
                self._begin(worker, now_ms)
        workers = self._state()
        seen = self.watch.see(now_ms, self._arrived, workers)
        self.seen.append((workers.busy_ms, workers.running, workers.waiting))
        self._arrived, self._in_time, self._busy_ms = 0, 0, 0.0
        if now_ms >= self._decides_ms:
            self._decides_ms = now_ms + self.scaler.every_ms
            started, leaving = self.pool.resize(self.scaler.decide(seen).workers, now_ms)
            for machine in started:
                self._push(machine.serves_ms, partial(self._serve, machine))
            for machine in leaving:
                if machine.ended_ms is None:
                    self._leave(machine, now_ms)
            if leaving:
                self._assign(now_ms)
        tick = int(now_ms // self.load.tick_ms)
        if tick < len(self._played.kept):
            self._played.kept[tick] = len(self.pool.kept)
            self._push(now_ms + _LOOK_MS, self._look)

    def _state(self) -> Workers:
        schedulers = [worker.scheduler for worker in self._workers.values()]
        return Workers(
            serving=len(schedulers),
            loading=len(self.pool.kept) - len(schedulers),
            running=sum(each.num_running for each in schedulers),
            waiting=sum(each.num_waiting for each in schedulers),
            busy_ms=self._busy_ms,
            in_time=self._in_time,
        )

    def _serve(self, machine: Machine, now_ms: float) -> None:
        if machine.leaves_ms is None:
            self._join(machine)
            self._assign(now_ms)

    def _join(self, machine: Machine) -> None:
        of = self.experiment
        costs = CostModel.from_state(of.costs.table)
        scheduler = scheduler_of(OURS, limits=of.limits, costs=costs, lengths=deepcopy(self._lengths))
        random = Random(f"engine/{machine.name}/{of.seed}")  # noqa: S311 - a load, not a secret
        gate = Gate(self._admission, AdmissionLimits.of(of.settings), worker_id=machine.name)
        engine = VirtualEngine(of.costs, of.noise, random)
        self._workers[machine.name] = FleetWorker(machine=machine, scheduler=scheduler, engine=engine, gate=gate)

    def _leave(self, machine: Machine, now_ms: float) -> None:
        worker = self._workers.pop(machine.name)
        self._admission.fleet.forget(machine.name)
        self._leaving[machine.name] = worker
        self._end_left(worker, now_ms)

    def _end_left(self, worker: FleetWorker, now_ms: float) -> None:
        if worker.idle:
            del self._leaving[worker.machine.name]
            self.pool.end(worker.machine, now_ms)

    def _assign(self, now_ms: float) -> None:
        """Assign the partitions to the workers again, as the group does."""
        self._round += 1
        members = {name: worker.member for name, worker in self._workers.items()}
        self._readers = {}
        for name, held in assign(dict.fromkeys(BUCKETS, PARTITIONS), members).items():
            worker, numbers = self._workers[name], held.get(BUCKETS[0], [])
            worker.member = GroupMember(topics=worker.member.topics, held=held, round=self._round)
            self._readers.update(dict.fromkeys(numbers, worker))
            worker.gate.reads(numbers, now_ms)
            if worker.step is None:
                self._begin(worker, now_ms)

    # --- requests

    def _arrive(self, request: Request, conversation: int) -> None:
        now_ms, self._arrived = request.arrival_ms, self._arrived + 1
        self._played.asked[int(now_ms // self.load.tick_ms)] += 1
        partition = zlib.crc32(b"%d" % conversation) % PARTITIONS
        worker, number = self._readers.get(partition), next(self._order)
        if worker is None:
            return
        deadline = deadline_of(request)
        if worker.gate.decide(str(number), request, deadline, partition=partition) == "accept":
            worker.mail.append(sequence_of(number, request, deadline, hints=False))
            if worker.step is None:
                self._begin(worker, now_ms)

    def _begin(self, worker: FleetWorker, now_ms: float) -> None:
        for finished in worker.take_mail(now_ms):
            self._end(worker, finished, now_ms)
        step = worker.scheduler.next_step(now_ms)
        if worker.machine.leaves_ms is None:
            worker.gate.report(worker.scheduler, now_ms)
        if step is None:
            if worker.machine.leaves_ms is not None:
                self._end_left(worker, now_ms)
            return
        self._busy_ms += worker.begin(step, now_ms)
        self._push(worker.ends_ms, partial(self._complete, worker))

    def _complete(self, worker: FleetWorker, now_ms: float) -> None:
        for finished in worker.complete(now_ms):
            self._end(worker, finished, now_ms)
        self._begin(worker, now_ms)

    def _end(self, worker: FleetWorker, finished: Finished, now_ms: float) -> None:
        sequence = worker.end(finished, now_ms)
        if outcome_of(sequence, finished, now_ms) is SimulatedOutcome.IN_DEADLINE:
            self._in_time += 1
            self._played.in_time[int(sequence.request.arrival_ms // self.load.tick_ms)] += 1
