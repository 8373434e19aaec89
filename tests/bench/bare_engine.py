"""The engine alone, its batch kept full: the most that the whole system's tokens a second could be.

`python -m tests.bench.bare_engine --prompts FILE --batch 8 --new-tokens 64`: the prompts of a batch are prefilled in as
few calls as the engine allows, then the batch is decoded together, every row to the same length, whatever the model
says. No row is ever empty, nothing is waited for: no Kafka, no other process of ours. Prints one JSON line.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from shared.errors import ReplylineError
from shared.process.lifetime import BAD_INPUT_STATUS, fail
from shared.settings import load_settings
from workers.engine import DecodeRow, Engine, PrefillChunk, Sampling
from workers.loading import LoadedModel, load_model
from workers.prompt.conversation import PromptBuilder
from workers.prompt.history_window import HistoryWindow

_GREEDY = Sampling()


class BareRun(Struct, frozen=True, kw_only=True):
    """`answers` holds each prompt's text, of as many tokens as were asked."""

    tok_s: float
    seconds: float
    prefill_s: float
    output_tokens: int
    prompt_tokens: list[int]
    answers: list[str]


def run(model: LoadedModel, questions: Sequence[str], *, batch: int, new_tokens: int) -> BareRun:
    """One full batch after the other; the first is computed twice, and its first time is not counted."""
    prompts = [_prompt(model, question) for question in questions]
    generate(model.engine, prompts[:batch], new_tokens)
    outputs: list[list[int]] = []
    prefill_s = 0.0
    start = time.perf_counter()
    for first in range(0, len(prompts), batch):
        rows, spent_s = generate(model.engine, prompts[first : first + batch], new_tokens)
        outputs += rows
        prefill_s += spent_s
    seconds = time.perf_counter() - start
    num_tokens = sum(map(len, outputs))
    return BareRun(
        tok_s=num_tokens / seconds,
        seconds=seconds,
        prefill_s=prefill_s,
        output_tokens=num_tokens,
        prompt_tokens=[len(prompt) for prompt in prompts],
        answers=[model.tokenizer.decode_bytes(row).decode(errors="replace") for row in outputs],
    )


def generate(engine: Engine, prompts: Sequence[Sequence[int]], new_tokens: int) -> tuple[list[list[int]], float]:
    """`new_tokens` of each prompt, stop tokens and what follows them included; and the seconds of prefill."""
    start = time.perf_counter()
    outputs: list[list[int]] = []
    most = engine.info.max_prefill_rows
    chunks = [
        PrefillChunk(slot=slot, past=0, token_ids=prompt, sampling=_GREEDY) for slot, prompt in enumerate(prompts)
    ]
    for first in range(0, len(chunks), most):
        for token in engine.prefill(chunks[first : first + most]):
            assert token is not None, "a whole prompt was given and no token came"
            outputs.append([token])
    prefill_s = time.perf_counter() - start
    for step in range(new_tokens - 1):
        tokens = engine.decode(
            [
                DecodeRow(slot=slot, past=len(prompt) + step, token_id=outputs[slot][-1], sampling=_GREEDY)
                for slot, prompt in enumerate(prompts)
            ]
        )
        for row, token in zip(outputs, tokens, strict=True):
            row.append(token)
    return outputs, prefill_s


def _prompt(model: LoadedModel, question: str) -> list[int]:
    """As the worker builds it with neither system text nor FAQ entries nor history."""
    prompts = PromptBuilder(model.template, system="", window=HistoryWindow("sliding", 0))
    return prompts.build(turns=(), grounding=(), question=question, max_tokens=model.engine.info.max_length).ids


def main() -> int:
    parser = argparse.ArgumentParser(description="the engine alone")
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--new-tokens", type=int, required=True)
    options = parser.parse_args()
    try:
        model = load_model(load_settings())
    except ReplylineError as error:
        return fail(str(error), BAD_INPUT_STATUS)
    questions = msgspec.json.decode(options.prompts.read_bytes(), type=list[str])
    result = run(model, questions, batch=options.batch, new_tokens=options.new_tokens)
    model.engine.close()
    sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
