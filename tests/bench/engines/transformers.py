"""transformers' own `generate`, alone in its process: what a user of the library would have.

`python -m tests.bench.engines.transformers --source PATH --dtype bf16 --threads 2 1,4 64 64`: loads a Hugging Face
folder and prints one JSON line, `Engine`. Greedy, with its own cache; on the GPU where torch has one. Prefill is what
one new token takes; decode is what all take, minus that.
"""

import importlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from ops.measure.usage import peak_rss_bytes
from shared.errors import ModelError, ReplylineError
from shared.model.folder import ModelFolder
from shared.process.lifetime import BAD_INPUT_STATUS, fail
from shared.settings import load_settings
from tests.bench.engines.gpu_memory import GpuMemory
from tests.bench.engines.timing import Engine, Timing

DTYPES: Final = {"fp32": "float32", "bf16": "bfloat16"}
_MIB: Final = 1 << 20
_WARM_TOKENS: Final = 4
_SEED: Final = 0


def run(
    source: Path, dtype: str, threads: int, batches: Sequence[int], *, prompt_tokens: int, new_tokens: int
) -> Engine:
    """Load and measure. Raises `ReplylineError` where the model cannot be loaded."""
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    manifest = ModelFolder.open(load_settings().model.dir).manifest
    memory = GpuMemory()
    torch.set_num_threads(threads)
    torch.manual_seed(_SEED)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = _load(transformers, source, getattr(torch, DTYPES[dtype])).to(device).eval()
    vocab_size = manifest.architecture.vocab_size
    timings: list[Timing] = []
    for batch in batches:
        prompts = torch.randint(0, vocab_size, (batch, prompt_tokens), device=device)
        _generate_s(torch, model, prompts, min(_WARM_TOKENS, new_tokens))
        first_s = _generate_s(torch, model, prompts, 1)
        all_s = _generate_s(torch, model, prompts, new_tokens)
        timings.append(
            Timing(
                batch=batch,
                prefill_s=first_s,
                decode_s=all_s - first_s,
                decode_steps=new_tokens - 1,
                rss_mib=peak_rss_bytes(os.getpid()) / _MIB,
                device_mib=memory.taken_mib(),
            )
        )
    return Engine(
        engine="transformers",
        model=manifest.name,
        precision=dtype,
        device=memory.device,
        runtime=f"transformers {transformers.__version__}, torch {torch.__version__}",
        timings=timings,
    )


def _generate_s(torch: Any, model: Any, prompts: Any, new_tokens: int) -> float:
    start = time.perf_counter()
    with torch.inference_mode():
        model.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            min_new_tokens=new_tokens,
            max_new_tokens=new_tokens,
            do_sample=False,
            pad_token_id=0,
        )
    if prompts.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start


def _load(transformers: Any, source: Path, dtype: Any) -> Any:
    try:
        return transformers.AutoModelForCausalLM.from_pretrained(str(source), dtype=dtype)
    except (OSError, ValueError, ImportError) as error:
        raise ModelError(f"transformers cannot load {source} ({' '.join(str(error).split())})") from error


def main(
    batches: str,
    prompt_tokens: int,
    new_tokens: int,
    source: Annotated[Path, typer.Option()],
    dtype: Annotated[str, typer.Option()],
    threads: Annotated[int, typer.Option()],
) -> None:
    sizes = {"prompt_tokens": prompt_tokens, "new_tokens": new_tokens}
    try:
        result = run(source, dtype, threads, [int(part) for part in batches.split(",")], **sizes)
    except ReplylineError as error:
        raise typer.Exit(fail(str(error), BAD_INPUT_STATUS)) from None
    sys.stdout.write(msgspec.json.encode(result).decode() + "\n")


if __name__ == "__main__":
    typer.run(main)
