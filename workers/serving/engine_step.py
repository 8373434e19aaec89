"""Run one step of the engine: KV transfers, then decode and prefill, in one call if the engine supports it.

Also record its metrics and costs. Called on the engine's thread.
"""

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Tokens
from typing import Any, cast

from msgspec import Struct, structs
from numpy.typing import NDArray

from shared.errors import EngineError
from shared.process.clock import monotonic_s
from shared.telemetry import metrics
from shared.telemetry.faults import caught
from workers.engine import Engine, MixingEngine, PrefillChunk, VerifyingEngine
from workers.schedule.costs import CostModel
from workers.schedule.scheduler import EngineStep
from workers.schedule.sequence import Sequence
from workers.schedule.slots import Export, Import, Move, Transfer
from workers.schedule.work import Work

_transfer_time = metrics.step_time.labels("transfer")
_prefill_time, _decode_time = (metrics.step_time.labels(kind) for kind in ("prefill", "decode"))
_prompt_tokens, _padding_tokens, _output_tokens = (
    metrics.tokens.labels(kind) for kind in ("prompt", "padding", "output")
)
_prefill_ratio, _decode_ratio = (metrics.cost_ratio.labels(kind) for kind in ("prefill", "decode"))

Keep = Callable[[Sequence, int, NDArray[Any]], None]


class StepResult(Struct, frozen=True, gc=False):
    """The sampled tokens of a step, and the duration of its parts.

    Attributes:
        mixed_s: duration of a call that computed both prompts and decode rows, or verified proposed tokens.
        verified: all tokens of each row if the step had proposed ones.
        spoiled: slots whose KV could not be imported; their prompts were not computed.
    """

    prefill_tokens: list[int | None]
    decode_tokens: list[int]
    transfer_s: float
    prefill_s: float = 0.0
    decode_s: float = 0.0
    mixed_s: float | None = None
    spoiled: frozenset[int] = frozenset()
    verified: Tokens[list[int]] = ()


def keep_nothing(sequence: Sequence, start: int, values: NDArray[Any]) -> None:
    """Store no KV, because there is no cache."""


def run_step(engine: Engine, step: EngineStep, keep: Keep) -> StepResult:
    """Run a step.

    Raises:
        EngineError: the device failed.
    """
    start = monotonic_s()
    spoiled = transfer(engine, step.transfers, keep)
    chunks = step.prefill
    if spoiled:
        chunks = tuple([chunk for chunk in chunks if chunk.slot not in spoiled])
    result = _compute(engine, step, chunks, transfer_s=monotonic_s() - start)
    if spoiled:
        sampled = iter(result.prefill_tokens)
        tokens = [None if chunk.slot in spoiled else next(sampled) for chunk in step.prefill]
        result = structs.replace(result, prefill_tokens=tokens, spoiled=spoiled)
    return result


def _compute(engine: Engine, step: EngineStep, chunks: Tokens[PrefillChunk], *, transfer_s: float) -> StepResult:
    rows, begun_s = step.decode, monotonic_s()
    if step.sources:
        prefilled, verified = cast("VerifyingEngine", engine).verify(chunks, rows)
        first = [tokens[0] for tokens in verified]
        return StepResult(prefilled, first, transfer_s, mixed_s=monotonic_s() - begun_s, verified=verified)
    if chunks and engine.info.mixes:
        prefilled, decoded = cast("MixingEngine", engine).mixed(chunks, rows)
        return StepResult(prefilled, decoded, transfer_s, mixed_s=monotonic_s() - begun_s)
    decoded = engine.decode(rows) if rows else []
    decoded_s = monotonic_s()
    prefilled = engine.prefill(chunks) if chunks else []
    return StepResult(prefilled, decoded, transfer_s, prefill_s=monotonic_s() - decoded_s, decode_s=decoded_s - begun_s)


def transfer(engine: Engine, transfers: Iterable[Transfer], keep: Keep) -> frozenset[int]:
    """Run transfers in order, and return the slots whose import failed; a failure affects no other slot.

    Exports go to `keep` immediately, since the conversation's next question may already be on its way.

    Raises:
        EngineError: the device failed.
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
        except Exception as error:  # noqa: BLE001 - counted and logged; the tokens are computed instead
            caught("kv", error)
            metrics.kv_dropped.labels("internal").inc()
            if isinstance(item, Import):
                spoiled.add(item.slot)
    return frozenset(spoiled)


def _export(engine: Engine, item: Export, keep: Keep) -> None:
    values = engine.export_kv(slot=item.slot, start=item.start, stop=item.stop)
    keep(item.sequence, item.start, values)


def learn_costs(costs: CostModel, step: EngineStep, result: StepResult) -> None:
    """Update the cost model with the duration of the calls, and record the ratio to its prediction."""
    for seconds, work in _calls(step, result):
        ratio = seconds * 1_000 / costs.observe(seconds * 1_000, work)
        if work.rows:
            _decode_ratio.observe(ratio)
        if work.tokens:
            _prefill_ratio.observe(ratio)


def _calls(step: EngineStep, result: StepResult) -> Iterator[tuple[float, Work]]:
    """Yield the duration and the work of each call of a step."""
    if result.mixed_s is not None:
        yield result.mixed_s, Work.of_mixed(step.prefill, step.decode)
        return
    if step.decode:
        yield result.decode_s, Work.of_rows(step.decode)
    if step.prefill:
        yield result.prefill_s, Work.of_rectangle(step.prefill)


def count_step(step: EngineStep, result: StepResult, costs: CostModel) -> None:
    """Record a step's tokens and the duration of its parts; that of a mixed call is divided in the predicted ratio."""
    prefill_s, decode_s = result.prefill_s, result.decode_s
    if result.mixed_s is not None:
        share = costs.decode_share(Work.of_mixed(step.prefill, step.decode)) if step.prefill else 1.0
        prefill_s, decode_s = result.mixed_s * (1 - share), result.mixed_s * share
    if step.prefill:
        _prefill_time.observe(prefill_s)
        lengths = [len(chunk.token_ids) for chunk in step.prefill]
        _prompt_tokens.inc(sum(lengths))
        if result.mixed_s is None:
            _padding_tokens.inc(len(lengths) * max(lengths) - sum(lengths))
    if step.decode:
        _decode_time.observe(decode_s)
        metrics.batch_rows.observe(len(step.decode))
    if step.transfers:
        _transfer_time.observe(result.transfer_s)
    _output_tokens.inc(len(step.decode) + sum(token is not None for token in result.prefill_tokens))
    for source, row, tokens in zip(step.sources, step.decode, result.verified, strict=False):
        metrics.speculated_tokens.labels("proposed", source).inc(len(row.proposed))
        metrics.speculated_tokens.labels("accepted", source).inc(len(tokens) - 1)
        _output_tokens.inc(len(tokens) - 1)
