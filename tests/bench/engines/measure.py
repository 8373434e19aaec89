"""One of our engines, alone in its process: the speed of its prefill and its steps at each batch.

`python -m tests.bench.engines.measure 1,4 64 64`: loads what the settings name
and prints one JSON line, `Engine`. Prompts are given as a worker gives them, in calls of at most
`worker.prefill_chunk_tokens`."""

import importlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import msgspec
import typer

from ops.measure.usage import peak_rss_bytes
from shared.errors import ReplylineError
from shared.model.folder import ModelFolder
from shared.process.lifetime import BAD_INPUT_STATUS, fail
from shared.settings import load_settings
from tests.bench.bare_engine import generate
from tests.bench.engines.gpu_memory import GpuMemory
from tests.bench.engines.timing import Engine, Timing
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
_WARM_TOKENS: Final = 4


@dataclass(slots=True)
class RuntimeClock:
    """Adds up the time inside the calls that it watches; a call within another counts once."""

    seconds: float = 0.0
    _depth: int = 0

    def now(self) -> float:
        """Return the seconds so far."""
        return self.seconds

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


def watched(engine_name: str) -> RuntimeClock | None:
    """A clock of what this engine calls; None for one whose runtime's calls are not known."""
    if engine_name not in RUNTIME_CALLS:
        return None
    module, owner, names = RUNTIME_CALLS[engine_name]
    clock = RuntimeClock()
    clock.watch(getattr(importlib.import_module(module), owner), names)
    return clock


def run(batches: Sequence[int], *, prompt_tokens: int, new_tokens: int) -> Engine:
    """Load what the settings name and measure it. Raises `ReplylineError`."""
    settings = load_settings()
    memory, folder, name = GpuMemory(), ModelFolder.open(settings.model.dir), settings.worker.engine
    engine = load_model(settings).engine
    clock = watched(name)
    timings: list[Timing] = []
    rows_a_call = max(1, min(engine.info.max_prefill_rows, settings.worker.prefill_chunk_tokens // prompt_tokens))
    for batch in batches:
        random = Random(batch)
        size = folder.manifest.architecture.vocab_size
        prompts = [[random.randrange(size) for _ in range(prompt_tokens)] for _ in range(batch)]
        generate(engine, prompts, min(_WARM_TOKENS, new_tokens), rows_a_call=rows_a_call)
        done = generate(engine, prompts, new_tokens, rows_a_call=rows_a_call, clock=clock.now if clock else float)
        timings.append(
            Timing(
                batch=batch,
                prefill_s=done.prefill_s,
                decode_s=done.decode_s,
                decode_steps=new_tokens - 1,
                rss_mib=peak_rss_bytes(os.getpid()) / _MIB,
                runtime_s=done.runtime_s if clock else None,
                device_mib=memory.taken_mib(),
            )
        )
    info = engine.info
    result = Engine(
        engine=name,
        model=info.model,
        precision=info.precision,
        device=memory.device,
        runtime=_runtime(name),
        timings=timings,
    )
    engine.close()
    return result


def _runtime(engine_name: str) -> str:
    module = {"onnx": "onnxruntime", "tensorrt-rtx": "tensorrt_rtx"}.get(engine_name, engine_name)
    return f"{module} {importlib.import_module(module).__version__}"


def main(batches: str, prompt_tokens: int, new_tokens: int) -> None:
    try:
        result = run([int(part) for part in batches.split(",")], prompt_tokens=prompt_tokens, new_tokens=new_tokens)
    except ReplylineError as error:
        raise typer.Exit(fail(str(error), BAD_INPUT_STATUS)) from None
    sys.stdout.write(msgspec.json.encode(result).decode() + "\n")


if __name__ == "__main__":
    typer.run(main)
