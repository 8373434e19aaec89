"""One engine, alone in its process: the speed of its steps at each batch and context, and of its prompts.

`python -m tests.bench.engines.measure SIZES` (a `Sizes` as JSON): loads what the settings name and prints one JSON
line, `Engine`. With `--source PATH --dtype bf16 --threads 2` it is transformers with a Hugging Face folder."""

import os
import sys
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Final, Protocol

import msgspec
import typer

from ops.measure.usage import peak_rss_bytes
from shared.errors import ReplylineError
from shared.model.folder import ModelFolder
from shared.process.lifetime import BAD_INPUT_STATUS, fail
from shared.settings import load_settings
from tests.bench.engines.gpu_memory import GpuMemory
from tests.bench.engines.hugging_face import Transformers
from tests.bench.engines.own import OwnEngine
from tests.bench.engines.timing import MIXED_ROWS, MIXED_TOKENS, Decoded, Engine, Mixed, Prefilled, Sizes

_MIB: Final = 1 << 20


class Subject(Protocol):
    """What is measured; `what` says what it is. Each method returns seconds; None where it cannot do so."""

    what: dict[str, Any]

    def decode(self, rows: int, context: int, new_tokens: int) -> tuple[float, float | None]: ...

    def prefill(self, tokens: int, past: int) -> float | None: ...

    def mixed(self, rows: int, context: int, tokens: int) -> tuple[float, float] | None: ...


def measured(subject: Subject, sizes: Sizes, model: str, memory: GpuMemory) -> Engine:
    """Measure it once."""
    decoded: list[Decoded] = []
    for context, rows in product(sizes.contexts, sizes.batches):
        seconds, runtime_s = subject.decode(rows, context, sizes.new_tokens)
        decoded.append(
            Decoded(
                rows=rows,
                context=context,
                steps=sizes.new_tokens,
                seconds=seconds,
                rss_mib=peak_rss_bytes(os.getpid()) / _MIB,
                runtime_s=runtime_s,
                device_mib=memory.taken_mib(),
            )
        )
    prompts = [(tokens, past, subject.prefill(tokens, past)) for past, tokens in product(sizes.pasts, sizes.prefills)]
    rows, tokens = min(MIXED_ROWS, max(sizes.batches)), min(MIXED_TOKENS, sizes.length)
    steps = [(context, subject.mixed(rows, context, tokens)) for context in sizes.contexts]
    return Engine(
        model=model,
        device=memory.device,
        decoded=decoded,
        prefilled=[Prefilled(tokens=tokens, past=past, seconds=s) for tokens, past, s in prompts if s is not None],
        mixed=[
            Mixed(rows=rows, context=context, tokens=tokens, seconds=times[0], apart_s=times[1])
            for context, times in steps
            if times is not None
        ],
        **subject.what,
    )


def main(
    sizes: str,
    source: Annotated[Path | None, typer.Option()] = None,
    dtype: Annotated[str, typer.Option()] = "fp32",
    threads: Annotated[int, typer.Option()] = 1,
) -> None:
    memory, settings = GpuMemory(), load_settings()
    try:
        manifest = ModelFolder.open(settings.model.dir).manifest
        subject: Subject = (
            OwnEngine.load(settings)
            if source is None
            else Transformers(source, dtype, threads, manifest.architecture.vocab_size)
        )
    except ReplylineError as error:
        raise typer.Exit(fail(str(error), BAD_INPUT_STATUS)) from None
    said = measured(subject, msgspec.json.decode(sizes, type=Sizes), manifest.name, memory)
    sys.stdout.write(msgspec.json.encode(said).decode() + "\n")


if __name__ == "__main__":
    typer.run(main)
