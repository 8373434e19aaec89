"""One engine, alone in its process: the speed of its prefill and its steps at each batch.

`python -m tests.bench.engines.measure 1,4 64 64`: loads what the settings name and prints one JSON line, `Engine`.
Prompts are given as a worker gives them, in calls of at most `worker.prefill_chunk_tokens`. With `--source PATH --dtype
bf16 --threads 2` it is transformers' own `generate` of a Hugging Face folder, as a user of the library would have it:
greedy, with its own cache, on the GPU where torch has one; prefill is what one new token takes, decode what all take,
minus that."""

import importlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Annotated, Any, Final

import msgspec
import typer

from ops.measure.usage import peak_rss_bytes
from shared.errors import ModelError, ReplylineError
from shared.model.folder import ModelFolder
from shared.process.lifetime import BAD_INPUT_STATUS, fail
from shared.settings import load_settings
from tests.bench.bare_engine import generate
from tests.bench.engines.gpu_memory import GpuMemory
from tests.bench.engines.timing import Engine, Timing
from workers.engine.load_model import load_model

# What each engine calls into: all else of a step is Python of ours. (module, class, its methods)
_STREAM_CALLS: Final = ("copy", "run", "launch", "synchronize")
RUNTIME_CALLS: Final = {
    "onnx": ("onnxruntime", "InferenceSession", ("run_with_iobinding",)),
    "tensorrt": ("workers.engine.tensorrt.cuda", "CudaStream", _STREAM_CALLS),
    "tensorrt-rtx": ("workers.engine.tensorrt.cuda", "CudaStream", _STREAM_CALLS),
    # On the CPU the decoder itself is Python too, and counts as torch's: `run` is all of it.
    "torch": ("workers.engine.torch.device", "TorchStream", _STREAM_CALLS),
}
DTYPES: Final = {"fp32": "float32", "bf16": "bfloat16"}
_MIB: Final = 1 << 20
_WARM_TOKENS: Final = 4

Prompts = list[list[int]]
Measure = Callable[[Prompts, int], tuple[float, float, float | None]]
"""Writes so many tokens of each prompt: prefill's seconds, those of decode, and how many of these in the runtime."""


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


def ours(prompt_tokens: int) -> tuple[Measure, dict[str, str]]:
    """The engine that the settings name, and what it is. Raises `ReplylineError`."""
    settings = load_settings()
    name = settings.worker.engine
    engine = load_model(settings).engine
    clock = RuntimeClock() if name in RUNTIME_CALLS else None
    if clock is not None:
        module, owner, names = RUNTIME_CALLS[name]
        clock.watch(getattr(importlib.import_module(module), owner), names)
    rows_a_call = max(1, min(engine.info.max_prefill_rows, settings.worker.prefill_chunk_tokens // prompt_tokens))

    def measure(prompts: Prompts, new_tokens: int) -> tuple[float, float, float | None]:
        now = float if clock is None else lambda: clock.seconds
        done = generate(engine, prompts, new_tokens, rows_a_call=rows_a_call, clock=now)
        return done.prefill_s, done.decode_s, None if clock is None else done.runtime_s

    library = {"onnx": "onnxruntime", "tensorrt-rtx": "tensorrt_rtx"}.get(name, name)
    runtime = f"{library} {importlib.import_module(library).__version__}"
    return measure, {"engine": name, "precision": engine.info.precision, "runtime": runtime}


def transformers(source: Path, dtype: str, threads: int) -> tuple[Measure, dict[str, str]]:
    """transformers with a Hugging Face folder, and what it is. Raises `ModelError`."""
    torch: Any = importlib.import_module("torch")
    library: Any = importlib.import_module("transformers")
    library.logging.set_verbosity_error()
    library.logging.disable_progress_bar()
    torch.set_num_threads(threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        model = library.AutoModelForCausalLM.from_pretrained(str(source), dtype=getattr(torch, DTYPES[dtype]))
    except (OSError, ValueError, ImportError) as error:
        raise ModelError(f"transformers cannot load {source} ({' '.join(str(error).split())})") from error
    model = model.to(device).eval()

    def generate_s(prompts: Prompts, new_tokens: int) -> float:
        ids = torch.tensor(prompts, device=device)
        asked = {"min_new_tokens": new_tokens, "max_new_tokens": new_tokens, "do_sample": False, "pad_token_id": 0}
        start = time.perf_counter()
        with torch.inference_mode():
            model.generate(ids, attention_mask=torch.ones_like(ids), **asked)
        if ids.is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - start

    def measure(prompts: Prompts, new_tokens: int) -> tuple[float, float, float | None]:
        first_s = generate_s(prompts, 1)
        return first_s, generate_s(prompts, new_tokens) - first_s, None

    runtime = f"transformers {library.__version__}, torch {torch.__version__}"
    return measure, {"engine": "transformers", "precision": dtype, "runtime": runtime}


def main(
    batches: str,
    prompt_tokens: int,
    new_tokens: int,
    source: Annotated[Path | None, typer.Option()] = None,
    dtype: Annotated[str, typer.Option()] = "fp32",
    threads: Annotated[int, typer.Option()] = 1,
) -> None:
    memory = GpuMemory()
    try:
        manifest = ModelFolder.open(load_settings().model.dir).manifest
        measure, what = ours(prompt_tokens) if source is None else transformers(source, dtype, threads)
    except ReplylineError as error:
        raise typer.Exit(fail(str(error), BAD_INPUT_STATUS)) from None
    timings: list[Timing] = []
    for batch in map(int, batches.split(",")):
        random, size = Random(batch), manifest.architecture.vocab_size
        prompts = [[random.randrange(size) for _ in range(prompt_tokens)] for _ in range(batch)]
        measure(prompts, min(_WARM_TOKENS, new_tokens))
        prefill_s, decode_s, runtime_s = measure(prompts, new_tokens)
        timings.append(
            Timing(
                batch=batch,
                prefill_s=prefill_s,
                decode_s=decode_s,
                decode_steps=new_tokens - 1,
                rss_mib=peak_rss_bytes(os.getpid()) / _MIB,
                runtime_s=runtime_s,
                device_mib=memory.taken_mib(),
            )
        )
    result = Engine(model=manifest.name, device=memory.device, timings=timings, **what)
    sys.stdout.write(msgspec.json.encode(result).decode() + "\n")


if __name__ == "__main__":
    typer.run(main)
