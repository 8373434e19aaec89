"""Greedy answers to prompts with any engine, without a scheduler."""

from collections.abc import Sequence
from typing import Final

from shared.versions.golden import GoldenSet
from workers.engine import DecodeRow, Engine, PrefillChunk, Sampling

_GREEDY: Final = Sampling()


def answer_greedily(engine: Engine, prompts: Sequence[Sequence[int]], num_tokens: int) -> list[list[int]]:
    """Return the `num_tokens` most likely tokens after each prompt, all decoded together, also beyond the model's
    end tokens."""
    chunks = [PrefillChunk(slot=s, past=0, token_ids=ids, sampling=_GREEDY) for s, ids in enumerate(prompts)]
    answers = [[token] for token in engine.prefill(chunks) if token is not None]
    for done in range(num_tokens - 1):
        rows = [
            DecodeRow(slot=s, past=len(prompts[s]) + done, token_id=answer[-1], sampling=_GREEDY)
            for s, answer in enumerate(answers)
        ]
        for answer, token in zip(answers, engine.decode(rows), strict=True):
            answer.append(token)
    return answers


def until_end(answer: list[int], stop_token_ids: frozenset[int]) -> list[int]:
    """Return an answer up to and including its first end token."""
    ends = [at for at, token in enumerate(answer) if token in stop_token_ids]
    return answer[: ends[0] + 1] if ends else answer


def golden_failure(engine: Engine, golden: GoldenSet) -> str | None:
    """Answer the golden prompts one after another; return how the answers differ from the version's, or None if they do
    not.

    This overwrites the engine's first slot.
    """
    asked = [answer_greedily(engine, [each.prompt_ids], len(each.output_ids))[0] for each in golden.prompts]
    return golden.failure(asked)
