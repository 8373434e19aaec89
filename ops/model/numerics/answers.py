"""The float32 model's own greedy answers, by the CPU engine."""

import os
from collections.abc import Sequence
from typing import Final

from shared.model.folder import ModelFolder
from workers.engine import DecodeRow, Engine, PrefillChunk, Sampling
from workers.engine.onnx import OnnxEngine

_ROWS: Final = 8
_GREEDY: Final = Sampling()


def greedy_answers(folder: ModelFolder, prompts: Sequence[Sequence[int]], *, num_tokens: int) -> list[list[int]]:
    """Up to `num_tokens` tokens each, fewer where the model ends; the token that ends it is the last."""
    longest = max(map(len, prompts)) + num_tokens
    engine = OnnxEngine(
        folder, num_slots=_ROWS, max_length=longest, threads=os.cpu_count() or 1, max_prefill_rows=_ROWS
    )
    answers: list[list[int]] = []
    try:
        for start in range(0, len(prompts), _ROWS):
            batch = answer_greedily(engine, prompts[start : start + _ROWS], num_tokens)
            answers += [_ended(answer, engine.info.stop_token_ids) for answer in batch]
    finally:
        engine.close()
    return answers


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


def _ended(answer: list[int], stops: frozenset[int]) -> list[int]:
    ends = [at for at, token in enumerate(answer) if token in stops]
    return answer[: ends[0] + 1] if ends else answer
