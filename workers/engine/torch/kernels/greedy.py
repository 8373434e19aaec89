"""The largest logit of each row, and the smallest token that has it."""

from typing import Final

import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from workers.engine.torch.kernels.launch import launch

_TOKENS: Final = 4_096  # at a time


@triton.jit
def _greedy(logits, peaks, token_ids, vocabulary, TOKENS: tl.constexpr, PDL: tl.constexpr):
    row = tl.program_id(0)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    peak = tl.full((TOKENS,), float("-inf"), dtype=tl.float32)
    best = tl.zeros((TOKENS,), dtype=tl.int32)
    for start in range(0, vocabulary, TOKENS):
        token = start + tl.arange(0, TOKENS)
        logit = tl.load(logits + row.to(tl.int64) * vocabulary + token, mask=token < vocabulary, other=float("-inf"))
        best = tl.where(logit > peak, token, best)
        peak = tl.where(logit > peak, logit, peak)
    highest = tl.max(peak, axis=0)
    tl.store(peaks + row, highest)
    tl.store(token_ids + row, tl.min(tl.where(peak == highest, best, vocabulary), axis=0).to(tl.int64))


def greedy(logits: Tensor, peaks: Tensor, token_ids: Tensor) -> None:
    """Of `logits` float32 `[B, vocabulary]`: `peaks` float32 `[B, 1]` and `token_ids` int64 `[B]`."""
    rows, vocabulary = logits.shape
    launch(_greedy, (rows,), logits, peaks, token_ids, vocabulary, TOKENS=_TOKENS, num_warps=8)
