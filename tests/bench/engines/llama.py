"""llama.cpp's own benches, of `ops/setup/llama-server`: their command lines and what they print. Pure.

`llama-batched-bench` decodes rows together; `llama-bench` adds a prompt to what a sequence holds. Both keep their
defaults: flash attention where the CPU has it, KV in fp16.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from ops.stack.processes import ServiceError
from tests.bench.engines.timing import Decoded, Engine, Prefilled, Sizes

BATCHED: Final = "llama-batched-bench"
PROMPTS: Final = "llama-bench"
_REPEATS: Final = 3
_NS: Final = 1e9
_LENGTH_MULTIPLE: Final = 256


class BatchedRow(Struct, frozen=True, kw_only=True):
    """A line of `llama-batched-bench`: `pl` sequences of `pp` tokens each, `tg` new ones of each in `t_tg` s."""

    pp: int
    tg: int
    pl: int
    t_tg: float


class PromptRow(Struct, frozen=True, kw_only=True):
    """A line of `llama-bench`: `n_prompt` tokens over `n_depth`, with the nanoseconds of each repetition."""

    n_prompt: int
    n_depth: int
    samples_ns: list[int]


_Row = TypeVar("_Row", BatchedRow, PromptRow)


def batched_arguments(gguf: Path, threads: int, sizes: Sizes) -> list[str]:
    """The prompt is computed once and copied to each row (`-pps`), whose KV stays its own. All that is measured fits
    the KV: rows that do not would be left out in silence."""
    a_row = max(sizes.contexts) + sizes.new_tokens + 1
    context = max(sizes.batches) * -(-a_row // _LENGTH_MULTIPLE) * _LENGTH_MULTIPLE
    return [
        *("-m", str(gguf), "-c", str(context), "-t", str(threads), "-tb", str(threads), "-pps"),
        *("-npp", _listed(sizes.contexts), "-ntg", str(sizes.new_tokens), "-npl", _listed(sizes.batches)),
        *("--output-format", "jsonl"),
    ]


def prompt_arguments(gguf: Path, threads: int, sizes: Sizes) -> list[str]:
    return [
        *("-m", str(gguf), "-t", str(threads), "-r", str(_REPEATS), "-n", "0"),
        *("-p", _listed(sizes.prefills), "-d", _listed(sizes.pasts), "-o", "jsonl"),
    ]


def parse(program: str, lines: Sequence[bytes], row: type[_Row]) -> list[_Row]:
    """Return the rows of the output. Raises `ServiceError` if there are none."""
    rows: list[_Row] = []
    for line in lines:
        if line.startswith(b"{"):
            try:
                rows.append(msgspec.json.decode(line, type=row))
            except msgspec.DecodeError:
                continue
    if not rows:
        said = lines[-1].decode(errors="replace") if lines else "nothing"
        raise ServiceError(f"{program} printed no result ({said}); run: ops/setup/llama-server")
    return rows


def measured(
    decoded: Sequence[BatchedRow], prompts: Sequence[PromptRow], model: str, gguf: Path, *, rss_mib: float
) -> Engine:
    """As the other engines' are; `rss_mib` is the most that the decoding process had."""
    return Engine(
        engine="llama.cpp",
        model=model,
        precision=gguf.stem.lower(),
        device="cpu",
        runtime=f"{BATCHED}, {PROMPTS}",
        decoded=[
            Decoded(rows=row.pl, context=row.pp, steps=row.tg, seconds=row.t_tg, rss_mib=rss_mib) for row in decoded
        ],
        prefilled=[
            Prefilled(tokens=row.n_prompt, past=row.n_depth, seconds=median(row.samples_ns) / _NS) for row in prompts
        ],
    )


def _listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
