"""Runs a model beside its float32 original, on the CPU engine that serves it: `replyline optimize evaluate`.

Both read a prompt; then the original's likeliest token is given to both, step by step, and their logits are compared.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from ops.measure.runner import check_writable, write_json
from ops.model.numerics.agreement import Agreement, Places, summary
from ops.texts.served_prompts import fixed_prompts
from shared.errors import SettingsError
from shared.model.folder import ModelFolder
from shared.model.tokenizer import Tokenizer
from shared.process.lifetime import fail
from workers.engine import DecodeRow, PrefillChunk, Sampling
from workers.engine.onnx import OnnxEngine
from workers.loading import chat_template

_ROWS: Final = 8
_GREEDY: Final = Sampling()


def evaluate(
    model: Path,
    original: Path,
    console: Console,
    *,
    num_prompts: int,
    num_tokens: int,
    bound: float | None,
    json_path: Path | None,
) -> int:
    """Measure the prepared folder `model` by `original` and print it. The exit status: 1 below the bound.

    Raises `ModelError` for a folder that is none, `SettingsError` where the two are not of one source or `json_path`
    cannot be written.
    """
    check_writable(json_path)
    folder, reference = ModelFolder.open(model), ModelFolder.open(original)
    if folder.manifest.source.sha256 != reference.manifest.source.sha256:
        raise SettingsError(
            f"--model {model} is made of {folder.manifest.source.name}, --original {original} of "
            f"{reference.manifest.source.name}; prepare both from one source"
        )
    tokenizer = Tokenizer.load(reference.path)
    template = chat_template(tokenizer, reference.manifest.chat_template)
    longest = reference.manifest.architecture.max_positions - num_tokens
    prompts = fixed_prompts(template, num_prompts, max_tokens=longest)
    length = max(map(len, prompts)) + num_tokens
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    engines = [engine_for(one, max_length=length) for one in (reference, folder)]
    try:
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("answering with both", total=1.0)
            found = compare(
                engines[0],
                engines[1],
                prompts,
                num_tokens=num_tokens,
                progress=lambda fraction: bar.update(task, completed=fraction),
            )
    finally:
        for engine in engines:
            engine.close()
    console.print(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    write_json(json_path, found)
    if bound is not None and not found.agreement >= bound:
        return fail(f"agreement {found.agreement:.4f} is below --bound {bound}; prepare the model anew, or as fp32", 1)
    return 0


def engine_for(folder: ModelFolder, *, max_length: int) -> OnnxEngine:
    """The CPU engine with as many slots as are compared at once."""
    return OnnxEngine(
        folder,
        num_slots=_ROWS,
        max_length=max_length,
        threads=os.cpu_count() or 1,
        spinning=False,
        max_prefill_rows=_ROWS,
    )


def compare(
    original: OnnxEngine,
    other: OnnxEngine,
    prompts: Sequence[Sequence[int]],
    *,
    num_tokens: int,
    progress: Callable[[float], None] = lambda _fraction: None,
) -> Agreement:
    """Over the original's greedy answers of up to `num_tokens` tokens, the one that ends an answer included.

    Both engines have a slot for each of the prompts that are answered together, and room for prompt and answer.
    """
    stops = original.info.stop_token_ids
    places: list[Places] = []
    for start in range(0, len(prompts), _ROWS):
        progress(start / len(prompts))
        batch = prompts[start : start + _ROWS]
        chunks = [PrefillChunk(slot=slot, past=0, token_ids=ids, sampling=_GREEDY) for slot, ids in enumerate(batch)]
        tokens = [token for token in original.prefill(chunks) if token is not None]
        other.prefill(chunks)
        going = np.ones(len(batch), bool)
        for done in range(num_tokens):
            here = np.flatnonzero(going)
            places.append(Places.compared(original.logits[here], other.logits[here]))
            going &= [token not in stops for token in tokens]
            if done == num_tokens - 1 or not going.any():
                break
            rows = [
                DecodeRow(slot=slot, past=len(ids) + done, token_id=tokens[slot], sampling=_GREEDY)
                for slot, ids in enumerate(batch)
            ]
            tokens = original.decode(rows)
            other.decode(rows)
    return summary(Places.joined(places), prompts=len(prompts))
