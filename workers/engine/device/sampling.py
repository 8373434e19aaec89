"""Draws a token from a part of a row, where that is sure to be what the whole row would have given: pure.

`workers.engine.sampling` defines the token. Of a row that samples the device sums the weights exp((logit - peak) /
temperature) of every `BLOCK_TOKENS` ids, in float32. A draw from the whole vocabulary goes by ids: the sums say in
which block it ends, and that block's logits at which token. A draw from a nucleus goes by weight: it ends among the
`NUM_CANDIDATES` largest logits, if they hold `top_p` of the sums' total.

The sums are known to `_TOLERANCE` of their total. Where that leaves more than one answer there is none, and the whole
row is asked for.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from workers.engine import Sampling
from workers.engine.sampling import invert, uniform

NUM_CANDIDATES: Final = 256
BLOCK_TOKENS: Final = 128
# A float32 sum of 128 numbers is off by 8e-6 at worst and by a tenth of that in practice, a GPU's exponential by a few
# units in the last place.
_TOLERANCE: Final = 1e-5
# Below it float32 cannot tell how far two logits lie apart by the temperature.
_LOWEST_TEMPERATURE: Final = 1e-2


def from_a_part(sampling: Sampling) -> bool:
    """Return whether a row that samples may be settled by a part of it."""
    return sampling.temperature >= _LOWEST_TEMPERATURE


def from_a_nucleus(sampling: Sampling) -> bool:
    """Return whether that part are its candidates, or else one of its blocks."""
    return sampling.top_p < 1.0


def draw_from_candidates(
    logits: NDArray[np.float32],
    token_ids: NDArray[np.int64],
    block_mass: NDArray[np.float32],
    sampling: Sampling,
    position: int,
) -> int | None:
    """Return the token at `position` of a sequence, or None where the candidates do not settle it.

    `logits` `[candidates]` are the row's largest, in any order, with their `token_ids`.
    """
    order = np.lexsort((token_ids, -logits))
    logits, token_ids = logits[order], token_ids[order]
    weights = _weights(logits, float(logits[0]), sampling)
    held = np.cumsum(weights)
    mass = block_mass.sum(dtype=np.float64)
    first, last = np.searchsorted(held, sampling.top_p * mass * np.array([1.0 - _TOLERANCE, 1.0 + _TOLERANCE]))
    size = int(last) + 1
    # A token that is not among the candidates may weigh as much as the last of them.
    if first != last or size > len(weights) or weights[size - 1] <= weights[-1]:
        return None
    return int(token_ids[invert(weights[:size], uniform(sampling.seed, position))])


def find_block(block_mass: NDArray[np.float32], sampling: Sampling, position: int) -> int | None:
    """Return the block in which a draw from all tokens ends, or None where the sums do not settle it."""
    held = np.cumsum(block_mass, dtype=np.float64)
    return _only(held, held[-1], sampling, position)


def draw_from_block(
    logits: NDArray[np.float32],
    block_mass: NDArray[np.float32],
    sampling: Sampling,
    position: int,
    *,
    block: int,
    peak: float,
) -> int | None:
    """Return the token at `position`, or None where the block that `find_block` found does not settle it.

    `logits` are the block's own, `peak` is the largest of the whole row.
    """
    before = block_mass[:block].sum(dtype=np.float64)
    held = before + np.cumsum(_weights(logits, peak, sampling))
    place = _only(held, block_mass.sum(dtype=np.float64), sampling, position)
    return None if place is None else block * BLOCK_TOKENS + place


def _weights(logits: NDArray[np.float32], peak: float, sampling: Sampling) -> NDArray[np.float64]:
    """Return the weights as `workers.engine.sampling` computes them: the same numbers, in the same order, give the same
    sums."""
    with np.errstate(under="ignore"):
        weights: NDArray[np.float64] = np.exp((logits - np.float64(peak)) / sampling.temperature)
    return weights


def _only(held: NDArray[np.float64], total: float, sampling: Sampling, position: int) -> int | None:
    """Return the one place at which cumulative sums pass the draw, whatever `total` and they are within the
    tolerance."""
    target = uniform(sampling.seed, position) * total
    margin = _TOLERANCE * total
    first, last = np.searchsorted(held, (target - margin, target + margin), side="right")
    return int(first) if first == last < len(held) else None
