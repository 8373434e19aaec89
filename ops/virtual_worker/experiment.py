"""A simulated worker: its costs, limits and settings, and the simulator of one trace."""

from random import Random
from typing import Final, Literal

from msgspec import Struct

from ops.traces.costs import EngineCosts
from ops.traces.drawn import KINDS, make_trace
from ops.traces.least_work import LeastWork
from ops.traces.trace import Trace
from ops.virtual_worker.gate import Gate
from ops.virtual_worker.simulator import Simulator
from ops.virtual_worker.virtual_engine import STOP, VirtualEngine
from shared.settings import Settings
from workers.schedule.costs import CostModel
from workers.schedule.goodput import build_scheduler, make_window
from workers.schedule.lengths import SHOWN, OutputLengths
from workers.schedule.scheduler import DECODE_STALL_MS, SchedulerLimits

Lengths = Literal["known", "predicted"]

_MAX_PREFILL_ROWS: Final = 8
_EARLIER_LOAD: Final = 0.5
_EARLIER_S: Final = 120.0
_EARLIER_SEED: Final = 1_000_003


class Experiment(Struct, frozen=True, kw_only=True):
    """A worker to simulate.

    `noise` is the standard deviation of each call's time, as a share; with noise the scheduler's cost model learns from
    the calls, otherwise it knows the table. `admission`: the worker gets only what the gateway's admission code
    accepts.
    """

    slots: int
    seconds: float = 0.0
    seed: int = 1
    lengths: Lengths = "predicted"
    costs: EngineCosts
    noise: float = 0.0
    admission: bool = True
    settings: Settings

    @property
    def least(self) -> LeastWork:
        chunk = self.settings.worker.prefill_chunk_tokens
        return LeastWork(costs=self.costs, num_slots=self.slots, prefill_chunk_tokens=chunk)

    def trace(self, kind: str, load: float) -> Trace:
        return make_trace(kind, load=load, seconds=self.seconds, seed=self.seed, least=self.least)

    def simulator(self, trace: Trace) -> Simulator:
        """Return the simulator of one trace; the scheduler has a window where the settings say so."""
        model, limits = self.cost_model(), self.limits
        window = make_window(self.settings.worker.window, limits)
        return Simulator(
            trace=trace,
            scheduler=build_scheduler(limits=limits, costs=model, lengths=self.history(trace.name), window=window),
            engine=self.engine(),
            gate=Gate.of(self.settings) if self.admission else None,
            learns=model if self.noise else None,
            hints=self.lengths == "known",
        )

    def cost_model(self) -> CostModel:
        return CostModel.from_state(self.costs.table)

    def engine(self, *, whole_batches: bool = False) -> VirtualEngine:
        random = Random(f"engine/{self.seed}")  # noqa: S311 - a load, not a secret
        return VirtualEngine(self.costs, self.noise, random, whole_batches=whole_batches)

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
