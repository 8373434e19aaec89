"""Greedy answers to prompts, by any engine, without a scheduler."""

from collections.abc import Sequence
from typing import Final

from shared.versions.golden import GoldenSet
from workers.engine import DecodeRow, Engine, PrefillChunk, Sampling

_GREEDY: Final = Sampling()


def answer_greedily(engine: Engine, prompts: Sequence[Sequence[int]], num_tokens: int) -> list[list[int]]:
    """Return the likeliest `num_tokens` tokens after each prompt, all decoded together, past the model's own ends
    too."""
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
    """Return an answer up to the first token that ends it, with that."""
    ends = [at for at, token in enumerate(answer) if token in stop_token_ids]
    return answer[: ends[0] + 1] if ends else answer


def golden_failure(engine: Engine, golden: GoldenSet) -> str | None:
    """Ask the golden prompts again, one after the other, and return why the answers are not the version's; None where
    they are. The engine's first slot is written over."""
    asked = [answer_greedily(engine, [each.prompt_ids], len(each.output_ids))[0] for each in golden.prompts]
    return golden.failure(asked)
