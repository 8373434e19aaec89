"""An engine that takes virtual time and ends each answer at the length that its request gives. Randomness is a
parameter."""

from collections.abc import Iterator
from collections.abc import Sequence as Rows
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, cast

from ops.traces.costs import EngineCosts
from ops.traces.trace import Request
from workers.engine import PrefillChunk
from workers.schedule.costs import CostModel
from workers.schedule.scheduler import EngineStep
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
    """The tokens that a step sampled, and the milliseconds and the work of each of its calls."""

    prefill_tokens: list[int | None]
    decode_tokens: list[int]
    calls: tuple[tuple[float, Work], ...]

    @property
    def took_ms(self) -> float:
        return sum([ms for ms, _ in self.calls])

    def slower(self, times: float) -> "Computed":
        """Return the same with the calls' time multiplied."""
        return replace(self, calls=tuple([(ms * times, work) for ms, work in self.calls]))


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

    def run(self, step: EngineStep) -> Computed:
        """Every sequence of the step is a `SimulatedSequence`."""
        decode_tokens: list[int] = []
        rows = Work()
        if step.decode:
            rows = Work.of_rows(step.decode)
            rows = Work(rows=rows.rows + len(self._held), context=rows.context + sum(self._held))
            self.rows_histogram[rows.rows] = self.rows_histogram.get(rows.rows, 0) + 1
            decoded = cast("Rows[SimulatedSequence]", step.decoded)
            # `_next` inlined for the rows that continue: there are sixty in a step.
            decode_tokens = [_WORD if len(row.output_ids) + 1 < row.num_sampled else _next(row) for row in decoded]
        prefill_tokens: list[int | None] = []
        for sequence, chunk in zip(step.prefilled, step.prefill, strict=True):
            assert isinstance(sequence, SimulatedSequence)
            sequence.num_chunks += 1
            prefill_tokens.append(None if chunk.sampling is None else _next(sequence))
        calls = tuple([(self._noisy(self._laws.ms(work)), work) for work in self._works(step.prefill, rows)])
        return Computed(prefill_tokens, decode_tokens, calls)

    def _works(self, chunks: Rows[PrefillChunk], rows: Work) -> Iterator[Work]:
        """Give the calls: one that computes all where the engine mixes, else that of the rows and then the prompts'."""
        if chunks and self._laws.mixes:
            for chunk in chunks:
                rows = rows.joined(len(chunk.token_ids), chunk.past)
            yield rows
            return
        if rows.rows:
            yield rows
        if chunks:
            yield Work.of_rectangle(chunks)

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
