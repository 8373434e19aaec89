"""One of our engines, alone in its process: the speed of its prefill and its steps at each batch.

`python -m tests.bench.engines.measure --batches 1,4 --prompt-tokens 64 --new-tokens 64`: loads what the settings name
and prints one JSON line, `Engine`. Prompts are given as a worker gives them, in calls of at most
`worker.prefill_chunk_tokens`."""

import argparse
import importlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import msgspec

from ops.measure.usage import peak_rss_bytes
from shared.errors import ReplylineError
from shared.model.folder import ModelFolder
from shared.process.lifetime import BAD_INPUT_STATUS, fail
from shared.settings import load_settings
from tests.bench.engines.gpu_memory import GpuMemory
from tests.bench.engines.timing import Engine as Measured
from tests.bench.engines.timing import Timing
from workers.engine import DecodeRow, Engine, PrefillChunk, Sampling
from workers.loading import load_model

# What each engine calls into: all else of a step is Python of ours. (module, class, its methods)
_STREAM_CALLS: Final = ("copy", "run", "launch", "synchronize")
RUNTIME_CALLS: Final = {
    "onnx": ("onnxruntime", "InferenceSession", ("run_with_iobinding",)),
    "tensorrt": ("workers.engine.tensorrt.cuda", "CudaStream", _STREAM_CALLS),
    "tensorrt-rtx": ("workers.engine.tensorrt.cuda", "CudaStream", _STREAM_CALLS),
    # On the CPU the decoder itself is Python too, and counts as torch's: `run` is all of it.
    "torch": ("workers.engine.torch.device", "TorchStream", _STREAM_CALLS),
}
_MIB: Final = 1 << 20
_WARM_STEPS: Final = 3
_GREEDY: Final = Sampling()


@dataclass(slots=True)
class RuntimeClock:
    """Adds up the time inside the calls that it watches; a call within another counts once."""

    seconds: float = 0.0
    _depth: int = 0

    def watch(self, owner: type, names: Sequence[str]) -> None:
        """Replace these methods of a class, for the rest of the process, by ones that are timed."""
        for name in names:
            setattr(owner, name, self._timed(getattr(owner, name)))

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            self._depth += 1
            start = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                self._depth -= 1
                if not self._depth:
                    self.seconds += time.perf_counter() - start

        return timed


def measure(
    engine: Engine,
    batch: int,
    *,
    prompt_tokens: int,
    new_tokens: int,
    call_tokens: int,
    vocab_size: int,
    clock: RuntimeClock | None,
    memory: GpuMemory,
) -> Timing:
    """Prefill `batch` prompts and decode them together; once shortly before, so that nothing is done first here."""
    random = Random(batch)
    prompts = [[random.randrange(vocab_size) for _ in range(prompt_tokens)] for _ in range(batch)]
    rows_a_call = max(1, min(engine.info.max_prefill_rows, call_tokens // prompt_tokens))
    _decode(engine, _prefill(engine, prompts, rows_a_call), prompt_tokens, min(_WARM_STEPS, new_tokens - 1))
    start = time.perf_counter()
    tokens = _prefill(engine, prompts, rows_a_call)
    prefilled = time.perf_counter()
    before = clock.seconds if clock is not None else 0.0
    _decode(engine, tokens, prompt_tokens, new_tokens - 1)
    ended = time.perf_counter()
    return Timing(
        batch=batch,
        prefill_s=prefilled - start,
        decode_s=ended - prefilled,
        decode_steps=new_tokens - 1,
        rss_mib=peak_rss_bytes(os.getpid()) / _MIB,
        runtime_s=clock.seconds - before if clock is not None else None,
        device_mib=memory.taken_mib(),
    )


def _prefill(engine: Engine, prompts: Sequence[Sequence[int]], rows_a_call: int) -> list[int]:
    tokens: list[int] = []
    for first in range(0, len(prompts), rows_a_call):
        chunks = [
            PrefillChunk(slot=first + row, past=0, token_ids=prompt, sampling=_GREEDY)
            for row, prompt in enumerate(prompts[first : first + rows_a_call])
        ]
        tokens += [token for token in engine.prefill(chunks) if token is not None]
    return tokens


def _decode(engine: Engine, tokens: list[int], past: int, steps: int) -> None:
    for step in range(steps):
        rows = [
            DecodeRow(slot=slot, past=past + step, token_id=token, sampling=_GREEDY)
            for slot, token in enumerate(tokens)
        ]
        tokens = engine.decode(rows)


def watched(engine_name: str) -> RuntimeClock | None:
    """A clock of what this engine calls; None for one whose runtime's calls are not known."""
    if engine_name not in RUNTIME_CALLS:
        return None
    module, owner, names = RUNTIME_CALLS[engine_name]
    clock = RuntimeClock()
    clock.watch(getattr(importlib.import_module(module), owner), names)
    return clock


def run(batches: Sequence[int], *, prompt_tokens: int, new_tokens: int) -> Measured:
    """Load what the settings name and measure it. Raises `ReplylineError`."""
    settings = load_settings()
    memory = GpuMemory()
    folder = ModelFolder.open(settings.model.dir)
    name = settings.worker.engine
    engine = load_model(settings).engine
    clock = watched(name)
    vocab_size = folder.manifest.architecture.vocab_size
    timings = [
        measure(
            engine,
            batch,
            prompt_tokens=prompt_tokens,
            new_tokens=new_tokens,
            call_tokens=settings.worker.prefill_chunk_tokens,
            vocab_size=vocab_size,
            clock=clock,
            memory=memory,
        )
        for batch in batches
    ]
    info = engine.info
    engine.close()
    return Measured(
        engine=name,
        model=info.model,
        precision=info.precision,
        device=memory.device,
        runtime=_runtime(name),
        timings=timings,
    )


def _runtime(engine_name: str) -> str:
    module = {"onnx": "onnxruntime", "tensorrt-rtx": "tensorrt_rtx"}.get(engine_name, engine_name)
    return f"{module} {importlib.import_module(module).__version__}"


def main() -> int:
    parser = argparse.ArgumentParser(description="one engine alone")
    parser.add_argument("--batches", type=lambda text: [int(part) for part in text.split(",")], required=True)
    parser.add_argument("--prompt-tokens", type=int, required=True)
    parser.add_argument("--new-tokens", type=int, required=True)
    options = parser.parse_args()
    try:
        result = run(options.batches, prompt_tokens=options.prompt_tokens, new_tokens=options.new_tokens)
    except ReplylineError as error:
        return fail(str(error), BAD_INPUT_STATUS)
    sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
