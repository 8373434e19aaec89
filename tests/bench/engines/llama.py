"""llama.cpp's own `llama-batched-bench`: its command line and what it prints. Pure.

How to have one (llama.cpp's sources lie in the llama-cpp-python sdist, in `vendor/llama.cpp`):

    cmake -S vendor/llama.cpp -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_CURL=OFF
        -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF
    cmake --build build --target llama-batched-bench llama-quantize
    build/bin/llama-quantize --allow-requantize SmolLM2-135M-Instruct.Q4_1.gguf q4_0.gguf Q4_0
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from ops.stack.processes import ServiceError
from tests.bench.engines.timing import Engine, Sizes, Timing


class BatchedRow(Struct, frozen=True, kw_only=True):
    """A line of its JSONL: `pl` sequences, of `pp` prompt tokens each in `t_pp` s, of `tg` new ones in `t_tg` s."""

    pp: int
    tg: int
    pl: int
    t_pp: float
    t_tg: float


def arguments(gguf: Path, threads: int, batches: Sequence[int], sizes: Sizes) -> list[str]:
    """Its KV is as long as what is measured needs: rows that do not fit it would be left out in silence."""
    context = max(batches) * (sizes.prompt_tokens + sizes.new_tokens)
    listed = ",".join(map(str, batches))
    return [
        *("-m", str(gguf), "-c", str(context), "-t", str(threads), "-tb", str(threads)),
        *("-npp", str(sizes.prompt_tokens), "-ntg", str(sizes.new_tokens), "-npl", listed),
        *("--output-format", "jsonl"),
    ]


def parse(lines: Sequence[bytes]) -> list[BatchedRow]:
    """The rows among all that it says. Raises `ServiceError` where there is none."""
    rows: list[BatchedRow] = []
    for line in lines:
        if line.startswith(b"{"):
            try:
                rows.append(msgspec.json.decode(line, type=BatchedRow))
            except msgspec.DecodeError:
                continue
    if not rows:
        said = lines[-1].decode(errors="replace") if lines else "nothing"
        raise ServiceError(f"--llama-bench printed no result ({said}); name llama.cpp's llama-batched-bench")
    return rows


def measured(rows: Sequence[BatchedRow], model: str, gguf: Path, *, runtime: str, rss_mib: float) -> Engine:
    """As the other engines' are; `rss_mib` is the most that its process had."""
    return Engine(
        engine="llama.cpp",
        model=model,
        precision=gguf.stem.lower(),
        device="cpu",
        runtime=runtime,
        timings=[
            Timing(batch=row.pl, prefill_s=row.t_pp, decode_s=row.t_tg, decode_steps=row.tg, rss_mib=rss_mib)
            for row in rows
        ],
    )
