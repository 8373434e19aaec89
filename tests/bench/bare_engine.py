"""The engine alone with a full batch: the upper bound of the whole system's tokens per second.

`python -m tests.bench.bare_engine PROMPTS BATCH NEW_TOKENS`: the prompts of a batch are prefilled in as few calls as
the engine allows, then the batch is decoded together, every row to the same length, ignoring stop tokens. No row is
ever empty and nothing blocks: no Kafka, no other process of ours. Prints one JSON line.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import typer
from msgspec import Struct

from shared.errors import ModelError, ReplylineError
from shared.process.lifetime import BAD_INPUT_STATUS, fail
from shared.settings import load_settings
from workers.engine import DecodeRow, Engine, PrefillChunk, Sampling
from workers.engine.load_model import LoadedModel, load_model
from workers.prompt.conversation import PromptBuilder

_GREEDY = Sampling()


class BareRun(Struct, frozen=True, kw_only=True):
    """`answers` holds each prompt's text, of as many tokens as were asked."""

    tok_s: float
    answers: list[str]


def run(model: LoadedModel, questions: Sequence[str], *, batch: int, new_tokens: int) -> BareRun:
    """One full batch after the other; the first is computed twice, and its first time is not counted."""
    # As the worker builds a prompt with neither system text nor FAQ entries nor history.
    builder = PromptBuilder(model.template, system="", most_turns=0)
    most = model.engine.info.max_length
    prompts = [builder.build(turns=(), grounding=(), question=one, max_tokens=most).ids for one in questions]
    generate(model.engine, prompts[:batch], new_tokens)
    rows: list[list[int]] = []
    start = time.perf_counter()
    for first in range(0, len(prompts), batch):
        rows += generate(model.engine, prompts[first : first + batch], new_tokens)
    seconds = time.perf_counter() - start
    return BareRun(
        tok_s=sum(map(len, rows)) / seconds,
        answers=[model.tokenizer.decode_bytes(row).decode(errors="replace") for row in rows],
    )


def generate(engine: Engine, prompts: Sequence[Sequence[int]], new_tokens: int) -> list[list[int]]:
    """Return `new_tokens` of each prompt, stop tokens and what follows them included."""
    rows: list[list[int]] = []
    most = engine.info.max_prefill_rows
    chunks = [PrefillChunk(slot=slot, past=0, token_ids=ids, sampling=_GREEDY) for slot, ids in enumerate(prompts)]
    for first in range(0, len(chunks), most):
        for token in engine.prefill(chunks[first : first + most]):
            assert token is not None, "a whole prompt was given and no token came"
            rows.append([token])
    for step in range(new_tokens - 1):
        asked = [
            DecodeRow(slot=slot, past=len(prompt) + step, token_id=rows[slot][-1], sampling=_GREEDY)
            for slot, prompt in enumerate(prompts)
        ]
        for row, token in zip(rows, engine.decode(asked), strict=True):
            row.append(token)
    return rows


def main(prompts: Path, batch: int, new_tokens: int) -> None:
    settings = load_settings()
    try:
        model = load_model(settings)
        if model.info.name != settings.worker.engine:
            raise ModelError(f"engine {settings.worker.engine} cannot be measured: {model.info.name} computes instead")
    except ReplylineError as error:
        raise typer.Exit(fail(str(error), BAD_INPUT_STATUS)) from None
    result = run(model, msgspec.json.decode(prompts.read_bytes(), type=list[str]), batch=batch, new_tokens=new_tokens)
    model.engine.close()
    sys.stdout.write(msgspec.json.encode(result).decode() + "\n")


if __name__ == "__main__":
    typer.run(main)
