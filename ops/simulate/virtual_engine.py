"""An engine that takes virtual time and ends each answer where its request says. Randomness is a parameter."""

from collections.abc import Sequence as Rows
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, cast

from ops.traces.costs import EngineCosts
from ops.traces.trace import Request
from workers.schedule.costs import CostModel
from workers.schedule.scheduler import Step
from workers.schedule.sequence import Sequence
from workers.schedule.work import Work

STOP: Final = 0
_WORD: Final = 1


@dataclass(slots=True, kw_only=True, eq=False)
class SimulatedSequence(Sequence):
    """A sequence whose answer's length is settled: `num_sampled` tokens are sampled for it, a stop token included."""

    request: Request
    index: int
    num_sampled: int
    num_chunks: int = 0


@dataclass(frozen=True, slots=True)
class Computed:
    """The tokens that a step sampled, and the time of each of its calls."""

    prefill_tokens: list[int | None]
    decode_tokens: list[int]
    prefill_ms: float
    decode_ms: float

    def slower(self, times: float) -> "Computed":
        """Return the same, whose calls took so many times as long."""
        return replace(self, prefill_ms=self.prefill_ms * times, decode_ms=self.decode_ms * times)


@dataclass(slots=True)
class VirtualEngine:
    """`noise` is the standard deviation of a factor of mean 1 that each call's time is multiplied by."""

    costs: EngineCosts
    noise: float
    random: Random
    whole_batches: bool = False
    rows_histogram: dict[int, int] = field(default_factory=dict)
    _held: list[int] = field(default_factory=list)  # contexts of rows that have ended and whose batch has not
    _laws: CostModel = field(init=False)

    def __post_init__(self) -> None:
        self._laws = CostModel.from_state(self.costs.table)

    def run(self, step: Step) -> Computed:
        """Every sequence of the step is a `SimulatedSequence`."""
        decode_tokens: list[int] = []
        decode_ms = prefill_ms = 0.0
        if step.decode:
            rows = len(step.decode) + len(self._held)
            self.rows_histogram[rows] = self.rows_histogram.get(rows, 0) + 1
            context = sum([row.past for row in step.decode]) + sum(self._held)
            decode_ms = self._noisy(self._laws.decode_ms(rows, context))
            decoded = cast("Rows[SimulatedSequence]", step.decoded)
            # `_next` without its call for all that go on: sixty rows a step.
            decode_tokens = [_WORD if len(row.output_ids) + 1 < row.num_sampled else _next(row) for row in decoded]
        prefill_tokens: list[int | None] = []
        if step.prefill:
            chunks = step.prefill
            # A call is a rectangle: shorter rows are padded.
            prefill_ms = self._noisy(self._laws.ms(Work.of_rectangle(chunks)))
            for sequence, chunk in zip(step.prefilled, chunks, strict=True):
                assert isinstance(sequence, SimulatedSequence)
                sequence.num_chunks += 1
                prefill_tokens.append(None if chunk.sampling is None else _next(sequence))
        return Computed(prefill_tokens, decode_tokens, prefill_ms, decode_ms)

    def ended(self, sequence: Sequence, *, last: bool) -> None:
        """Note that an answer has ended; in a whole batch its row is computed on until the last has."""
        if last:
            self._held.clear()
        elif self.whole_batches:
            self._held.append(sequence.computed)

    def _noisy(self, ms: float) -> float:
        return ms * max(0.1, self.random.gauss(1.0, self.noise)) if self.noise else ms


def _next(sequence: Sequence) -> int:
    """Return the stop token after the answer's last."""
    assert isinstance(sequence, SimulatedSequence)
    sampled = len(sequence.output_ids) + 1
    return _WORD if sampled < sequence.num_sampled or sampled == sequence.max_output_tokens else STOP
