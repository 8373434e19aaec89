"""Which examples are learned together, and how fast: length-bucketed batches, warm-up and cosine. Pure."""

import math
import random
from collections.abc import Sequence
from typing import Final

# Examples are sorted by length among so many batches' worth of their neighbours: enough for little padding, few enough
# that a batch's examples are chance's.
_SORTED_TOGETHER: Final = 16
_LAST_SHARE: Final = 0.1


def plan_batches(lengths: Sequence[int], *, tokens: int, epochs: int, seed: int) -> list[tuple[int, ...]]:
    """Every epoch's batches in order: indices of `lengths`, each index once an epoch.

    A batch padded to its longest has at most `tokens` tokens, but never less than one example.
    """
    batches: list[tuple[int, ...]] = []
    for epoch in range(epochs):
        chance = random.Random(f"{seed}/{epoch}")  # noqa: S311 - an order that can be made again
        order = list(range(len(lengths)))
        chance.shuffle(order)
        mean = max(1, sum(lengths) // max(1, len(lengths)))
        size = max(1, _SORTED_TOGETHER * tokens // mean)
        packed = [
            batch
            for at in range(0, len(order), size)
            for batch in _packed(sorted(order[at : at + size], key=lambda index: lengths[index]), lengths, tokens)
        ]
        chance.shuffle(packed)
        batches += packed
    return batches


def _packed(order: Sequence[int], lengths: Sequence[int], tokens: int) -> list[tuple[int, ...]]:
    """`order` is ascending by length, so an example is the longest of its batch so far."""
    batches: list[tuple[int, ...]] = []
    batch: list[int] = []
    for index in order:
        if batch and (len(batch) + 1) * lengths[index] > tokens:
            batches.append(tuple(batch))
            batch = []
        batch.append(index)
    if batch:
        batches.append(tuple(batch))
    return batches


def learning_rate(step: int, *, steps: int, peak: float, warmup: int) -> float:
    """Of step 0 to `steps - 1`: up to `peak` in a line, then down to a tenth of it along half a cosine."""
    if step < warmup:
        return peak * (step + 1) / warmup
    done = (step - warmup) / max(1, steps - 1 - warmup)
    return peak * (_LAST_SHARE + (1 - _LAST_SHARE) * (1 + math.cos(math.pi * min(1.0, done))) / 2)
