"""Virtual time with several workers of one lane, and the gateway that places conversations among them.

Its admission, its choice of partitions and the workers' scheduler are those that serve. A conversation's KV is where
its last question was computed; at another worker nine tenths of it are loaded, as measured (docs/measured.md), and the
rest is computed. What Redis notes of open questions is noted here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random
from typing import Final

from msgspec import structs

from gateway.destination.admission import Admission, AdmissionPolicy
from gateway.destination.partitions import offer
from ops.lab.simulate.rivals import OURS, scheduler_of
from ops.lab.simulate.simulated_worker import SimulatedWorker
from ops.traces.drawn import KINDS, capacity_per_s
from ops.traces.mixes import held
from ops.traces.trace import Request, Trace
from ops.virtual_worker.experiment import Experiment
from ops.virtual_worker.gate import Gate
from ops.virtual_worker.simulator import SimulatedOutcome, deadline_of, outcome_of, sequence_of
from ops.virtual_worker.virtual_engine import VirtualEngine
from shared.kafka.producer import partition_of
from shared.wire.session_key import SessionKey
from workers.schedule.costs import CostModel
from workers.schedule.sequence import Finished, Prefix

_MIX: Final = "poisson"
_PARTITIONS: Final = 24
_RESTS_MS: Final = 1_000.0  # as `gateway/destination/claim.py` has it
_HISTORY_TOKENS: Final = 200
_LOADED: Final = 0.9


@dataclass(slots=True, eq=False)
class _Conversation:
    """The place where its last question was computed, and until when each of its questions holds it there."""

    worker: SimulatedWorker | None = None
    partition: int | None = None
    held_ms: dict[int, float] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class PlacedSimulator:
    """Runs a trace once. `by_slack`: the gateway chooses partitions; else the keys' hash does."""

    trace: Trace
    workers: Sequence[SimulatedWorker]
    by_slack: bool
    in_time: int = 0
    _conversations: dict[SessionKey, _Conversation] = field(default_factory=dict)
    _offered: int = 0

    def run(self) -> int:
        """Run until every request has ended; return how many the model answered whole in time."""
        while (now_ms := self._next_ms()) is not None:
            for worker in self.workers:
                if worker.step is not None and worker.ends_ms <= now_ms:
                    self._complete(worker, now_ms)
            while self._arrival_ms() <= now_ms:
                self._ask(self._offered, now_ms)
                self._offered += 1
            for worker in self.workers:
                if worker.step is None:
                    self._begin(worker, now_ms)
        return self.in_time

    def _next_ms(self) -> float | None:
        at_ms = min([each.ends_ms for each in self.workers if each.step is not None], default=float("inf"))
        at_ms = min(at_ms, self._arrival_ms())
        return None if at_ms == float("inf") else at_ms

    def _arrival_ms(self) -> float:
        requests = self.trace.requests
        return requests[self._offered].arrival_ms if self._offered < len(requests) else float("inf")

    def _ask(self, index: int, now_ms: float) -> None:
        request = self.trace.requests[index]
        conversation = self._conversations.setdefault(_key(request), _Conversation())
        partition = partition_of(_key(request).record_key, _PARTITIONS)
        if self.by_slack:
            pinned = any(until_ms > now_ms for until_ms in conversation.held_ms.values())
            waits = self.workers[0].gate.admission.fleet.waits(request.bucket, now_ms)
            claimed = offer(partition, waits).to(conversation.partition, pinned=pinned)
            partition = partition if claimed.partition is None else claimed.partition
        conversation.partition = partition
        worker = next(each for each in self.workers if partition in each.gate.partitions)
        deadline = deadline_of(request)
        if worker.gate.decide(str(index), request, deadline, partition=partition) != "accept":
            return
        moved = conversation.worker not in {None, worker}
        conversation.held_ms[index], conversation.worker = float("inf"), worker
        sequence = sequence_of(index, request, deadline, hints=False)
        sequence.begin_with(Prefix(num_tokens=round(_HISTORY_TOKENS * (_LOADED if moved else 1.0))))
        worker.mail.append(sequence)

    def _begin(self, worker: SimulatedWorker, now_ms: float) -> None:
        for finished in worker.take_mail(now_ms):
            self._end(worker, finished, now_ms)
        step = worker.scheduler.next_step(now_ms)
        worker.gate.report(worker.scheduler, now_ms)
        if step is not None:
            worker.begin(step, now_ms)

    def _complete(self, worker: SimulatedWorker, now_ms: float) -> None:
        for finished in worker.complete(now_ms):
            self._end(worker, finished, now_ms)

    def _end(self, worker: SimulatedWorker, finished: Finished, now_ms: float) -> None:
        sequence = worker.end(finished, now_ms)
        self._conversations[_key(sequence.request)].held_ms[sequence.index] = now_ms + _RESTS_MS
        self.in_time += outcome_of(sequence, finished, now_ms) is SimulatedOutcome.IN_DEADLINE


def placed_simulator(experiment: Experiment, trace: Trace, *, workers: int, by_slack: bool) -> PlacedSimulator:
    """Return the simulator of a trace with this many workers and equal shares of the partitions."""
    admission, limits, share = Admission(AdmissionPolicy()), Gate.of(experiment.settings).limits, _PARTITIONS // workers
    lengths = [experiment.history(_MIX) for _ in range(workers)]
    made = [
        SimulatedWorker(
            scheduler=scheduler_of(
                OURS, limits=experiment.limits, costs=CostModel.from_state(experiment.costs.table), lengths=known
            ),
            engine=VirtualEngine(experiment.costs, 0.0, Random(number)),
            gate=Gate(
                admission=admission,
                limits=limits,
                worker_id=f"w{number}",
                partitions=range(number * share, (number + 1) * share),
            ),
        )
        for number, known in enumerate(lengths)
    ]
    return PlacedSimulator(trace=trace, workers=made, by_slack=by_slack)


def zipf_trace(experiment: Experiment, *, workers: int, load: float, tenants: int, exponent: float) -> Trace:
    """Return a steady trace of tenants that ask in a conversation each, the n-th of them 1/n^`exponent` as often as the
    first. At load 1.0 they ask what the machines can do at the very best (`LeastWork`)."""
    draw = KINDS[_MIX].mix(experiment.costs.promise)
    per_ms = load * workers * capacity_per_s(draw, experiment.least) / 1_000
    random = Random(f"zipf/{experiment.seed}")
    often = list(accumulate((number + 1) ** -exponent for number in range(tenants)))

    def arrivals() -> Iterator[Request]:
        t = 0.0
        while (t := t + random.expovariate(per_ms)) < experiment.seconds * 1_000:
            request, [name] = draw(random, t), random.choices(range(tenants), cum_weights=often)
            yield structs.replace(
                request,
                prompt_tokens=request.prompt_tokens + _HISTORY_TOKENS,
                tenant=f"t{name}",
                session=f"s{experiment.seed}",
            )

    requests = held(arrivals(), Random(f"held/{experiment.seed}"))
    return Trace(name="zipf", load=load, seed=experiment.seed, requests=requests)


def _key(request: Request) -> SessionKey:
    return SessionKey(request.tenant, request.session or "")
