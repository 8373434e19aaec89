"""The float32 model's own greedy answers, computed by the CPU engine."""

import os
from collections.abc import Sequence
from typing import Final

from shared.model.folder import ModelFolder
from workers.engine.greedy import answer_greedily, until_end
from workers.engine.onnx import OnnxEngine

_ROWS: Final = 8


def greedy_answers(folder: ModelFolder, prompts: Sequence[Sequence[int]], *, num_tokens: int) -> list[list[int]]:
    """Return up to `num_tokens` tokens per prompt, fewer if the model ends its answer, including the token that ends
    it."""
    longest = max(map(len, prompts)) + num_tokens
    engine = OnnxEngine(
        folder, num_slots=_ROWS, max_length=longest, threads=os.cpu_count() or 1, max_prefill_rows=_ROWS
    )
    answers: list[list[int]] = []
    try:
        for start in range(0, len(prompts), _ROWS):
            batch = answer_greedily(engine, prompts[start : start + _ROWS], num_tokens)
            answers += [until_end(answer, engine.info.stop_token_ids) for answer in batch]
    finally:
        engine.close()
    return answers
