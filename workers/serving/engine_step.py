"""One step of the engine: transfers of KV, decode, prefill; counted, and learned from. On the engine's thread."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from shared.errors import EngineError
from shared.process.clock import monotonic_s
from shared.telemetry import metrics
from shared.telemetry.faults import caught
from workers.engine import Engine
from workers.schedule.costs import CostModel
from workers.schedule.scheduler import Step
from workers.schedule.sequence import Sequence
from workers.schedule.slots import Export, Import, Move, Transfer
from workers.schedule.work import Work

# Counted in every step.
_transfer_time = metrics.step_time.labels("transfer")
_prefill_time, _decode_time = (metrics.step_time.labels(kind) for kind in ("prefill", "decode"))
_prompt_tokens, _padding_tokens, _output_tokens = (
    metrics.tokens.labels(kind) for kind in ("prompt", "padding", "output")
)
_prefill_ratio, _decode_ratio = (metrics.cost_ratio.labels(kind) for kind in ("prefill", "decode"))

Keep = Callable[[Sequence, int, NDArray[Any]], None]


@dataclass(frozen=True, slots=True)
class StepResult:
    """The tokens that the engine sampled, and the time of each part of the step. In the `spoiled` slots KV that was to
    be there is not: nothing was computed of their prompts."""

    prefill_tokens: list[int | None]
    decode_tokens: list[int]
    transfer_s: float
    prefill_s: float
    decode_s: float
    spoiled: frozenset[int] = frozenset()


def keep_nothing(sequence: Sequence, start: int, values: NDArray[Any]) -> None:
    """Without a cache nothing is exported."""


def run_step(engine: Engine, step: Step, keep: Keep) -> StepResult:
    """Compute a step: transfers, decode, prefill. Raises `EngineError`."""
    start = monotonic_s()
    spoiled = transfer(engine, step.transfers, keep)
    moved = monotonic_s()
    decoded = engine.decode(step.decode) if step.decode else []
    middle = monotonic_s()
    prefilled: list[int | None] = []
    if spoiled:
        whole = tuple([chunk for chunk in step.prefill if chunk.slot not in spoiled])
        sampled = iter(engine.prefill(whole) if whole else [])
        prefilled = [None if chunk.slot in spoiled else next(sampled) for chunk in step.prefill]
    elif step.prefill:
        prefilled = engine.prefill(step.prefill)
    return StepResult(
        prefilled,
        decoded,
        transfer_s=moved - start,
        prefill_s=monotonic_s() - middle,
        decode_s=middle - moved,
        spoiled=spoiled,
    )


def transfer(engine: Engine, transfers: Iterable[Transfer], keep: Keep) -> frozenset[int]:
    """Carry out transfers in their order: each finds what those before it have left. Raises `EngineError`.

    What is exported is given to `keep` at once: its conversation's next question may be on its way. One that cannot be
    imported or kept harms no other: returns the slots in which there is not what should be.
    """
    spoiled: set[int] = set()
    for item in transfers:
        if isinstance(item, Move):
            engine.move(source=item.source, target=item.target, length=item.length)
            (spoiled.add if item.source in spoiled else spoiled.discard)(item.target)
            continue
        try:
            if isinstance(item, Import):
                engine.import_kv(slot=item.slot, start=item.start, values=item.values)
            elif item.slot not in spoiled:
                _export(engine, item, keep)
        except EngineError:
            raise
        except Exception as error:  # noqa: BLE001 - counted and logged; the tokens are computed
            caught("kv", error)
            metrics.kv_dropped.labels("internal").inc()
            if isinstance(item, Import):
                spoiled.add(item.slot)
    return frozenset(spoiled)


def _export(engine: Engine, item: Export, keep: Keep) -> None:
    values = engine.export_kv(slot=item.slot, start=item.start, stop=item.stop)
    keep(item.sequence, item.start, values)


def learn_costs(costs: CostModel, step: Step, result: StepResult) -> None:
    """Teach the cost model what the calls took, and observe that against what it had predicted."""
    if step.decode:
        ms = result.decode_s * 1_000
        _decode_ratio.observe(ms / costs.observe(ms, Work.of_rows(step.decode)))
    if step.prefill:
        ms = result.prefill_s * 1_000
        _prefill_ratio.observe(ms / costs.observe(ms, Work.of_rectangle(step.prefill)))


def count_step(step: Step, result: StepResult) -> None:
    """Count a step's tokens and the time of its parts."""
    if step.prefill:
        _prefill_time.observe(result.prefill_s)
        lengths = [len(chunk.token_ids) for chunk in step.prefill]
        _prompt_tokens.inc(sum(lengths))
        _padding_tokens.inc(len(lengths) * max(lengths) - sum(lengths))
    if step.decode:
        _decode_time.observe(result.decode_s)
        metrics.batch_rows.observe(len(step.decode))
    if step.transfers:
        _transfer_time.observe(result.transfer_s)
    _output_tokens.inc(len(step.decode) + sum(token is not None for token in result.prefill_tokens))
