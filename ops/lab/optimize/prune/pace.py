"""Measure how long decoders of different shapes take, in turns on one machine."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from ops.model.prepare import prepare_model
from shared.model.folder import ModelFolder
from shared.process.clock import monotonic_s
from shared.process.hardware import usable_cores
from shared.settings import load_settings
from workers.engine import DecodeRow, Engine, PrefillChunk, Sampling
from workers.engine.native.load_native import load_native
from workers.engine.onnx import OnnxEngine
from workers.engine.unusable import Unusable

ROWS: Final = 8
_PAST: Final = 192
_PROMPT_TOKENS: Final = 128
_MAX_LENGTH: Final = 512
_ROUNDS: Final = 25
_SMALLEST_MS: Final = 1e-3  # if the clock measured less
_GREEDY: Final = Sampling()


class Pace(NamedTuple):
    """The shortest measured milliseconds of a decode step of `ROWS` rows, and of a prompt of 128 tokens."""

    decode_ms: float
    prefill_ms: float


def paces(sources: Sequence[Path], scratch: Path, report: Callable[[str], None]) -> list[Pace]:
    """Return the pace of each source in 8 bits, by the engine that the demo uses on this machine.

    Args:
        sources: Hugging Face folders.
        scratch: where they are prepared.
        report: called with each step's name.

    Raises:
        ModelError: a source cannot be prepared.
    """
    with ExitStack() as closing:
        engines: list[Engine] = []
        for number, source in enumerate(sources, 1):
            report(f"preparing shape {number} of {len(sources)}")
            engines.append(_engine(prepare_model(scratch, "int8", source=source)))
            closing.callback(engines[-1].close)
        report("measuring the shapes in turns")
        found: list[list[Pace]] = [[] for _ in engines]
        for _ in range(_ROUNDS):
            for engine, of_engine in zip(engines, found, strict=True):
                of_engine.append(_one(engine))
    # Other processes make single calls longer, never shorter.
    return [Pace(min(one.decode_ms for one in each), min(one.prefill_ms for one in each)) for each in found]


def _engine(folder: ModelFolder) -> Engine:
    worker = load_settings().worker.model_copy(update={"slots": ROWS, "max_length": _MAX_LENGTH})
    found = load_native(worker, folder)
    if isinstance(found, Unusable):
        return OnnxEngine(folder, num_slots=ROWS, max_length=_MAX_LENGTH, threads=worker.threads or usable_cores())
    return found


def _one(engine: Engine) -> Pace:
    begun = monotonic_s()
    engine.prefill([PrefillChunk(slot=0, past=0, token_ids=[1] * _PROMPT_TOKENS, sampling=_GREEDY)])
    between = monotonic_s()
    engine.decode([DecodeRow(slot=slot, past=_PAST, token_id=1, sampling=_GREEDY) for slot in range(ROWS)])
    return Pace(*(max(_SMALLEST_MS, 1e3 * each) for each in (monotonic_s() - between, between - begun)))
