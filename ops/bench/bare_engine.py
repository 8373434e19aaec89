"""The engine alone: the loop that the whole system's tokens a second are divided by.

`python -m ops.bench.bare_engine --prompts FILE --batch 8 --new-tokens 64`: every prompt of a batch is prefilled, one
after the other, then the batch is decoded together. No Kafka, no other process of ours. Prints one JSON line.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from shared.errors import ReplylineError
from shared.process import BAD_INPUT_STATUS, fail
from shared.settings import load_settings
from workers.conversation import PromptBuilder
from workers.engine import DecodeRow, Engine, PrefillChunk, Sampling
from workers.engine.loading import LoadedModel, load_model
from workers.history_window import HistoryWindow

_GREEDY = Sampling()


class BareRun(Struct, frozen=True, kw_only=True):
    """`answers` holds each prompt's text as far as a stop token; `stopped` counts the answers that have one."""

    tok_s: float
    seconds: float
    prefill_s: float
    output_tokens: int
    prompt_tokens: list[int]
    stopped: int
    answers: list[str]


def run(model: LoadedModel, questions: Sequence[str], *, batch: int, new_tokens: int) -> BareRun:
    """One batch after the other; the first is computed twice, and its first time is not counted."""
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
    stops = model.engine.info.stop_token_ids
    ended = [next((at for at, token in enumerate(row) if token in stops), len(row)) for row in outputs]
    num_tokens = sum(ended)
    written = [row[:end] for row, end in zip(outputs, ended, strict=True)]
    texts = [model.tokenizer.decode_bytes(row).decode(errors="replace") for row in written]
    return BareRun(
        tok_s=num_tokens / seconds,
        seconds=seconds,
        prefill_s=prefill_s,
        output_tokens=num_tokens,
        prompt_tokens=[len(prompt) for prompt in prompts],
        stopped=sum(end < new_tokens for end in ended),
        answers=texts,
    )


def generate(engine: Engine, prompts: Sequence[Sequence[int]], new_tokens: int) -> tuple[list[list[int]], float]:
    """The tokens of each prompt, stop tokens and what follows them included; and the seconds of prefill."""
    start = time.perf_counter()
    outputs: list[list[int]] = []
    for slot, prompt in enumerate(prompts):
        (token,) = engine.prefill([PrefillChunk(slot=slot, past=0, token_ids=prompt, sampling=_GREEDY)])
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
