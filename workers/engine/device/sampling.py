"""Draw a token from a part of a row, if that is certain to be the token of the whole row. Pure.

`workers.engine.sampling` defines the token. For a row that samples, the device sums the weights exp((logit - peak) /
temperature) of every `BLOCK_TOKENS` ids in float32. A draw from the whole vocabulary is ordered by id: the sums show in
which block it ends, and that block's logits at which token. A draw from a nucleus is ordered by weight: it ends among
the `NUM_CANDIDATES` largest logits if they hold `top_p` of the total.

The sums are known up to `_TOLERANCE` of their total. If more than one token is possible within that, there is no
result, and the caller reads the whole row.
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
# Below this, float32 cannot represent two logits' distance divided by the temperature.
_LOWEST_TEMPERATURE: Final = 1e-2


def from_a_part(sampling: Sampling) -> bool:
    """Return whether a part may be enough for a row that samples."""
    return sampling.temperature >= _LOWEST_TEMPERATURE


def from_a_nucleus(sampling: Sampling) -> bool:
    """Return whether that part is the candidates; otherwise it is one of the blocks."""
    return sampling.top_p < 1.0


def draw_from_candidates(
    logits: NDArray[np.float32],
    token_ids: NDArray[np.int64],
    block_mass: NDArray[np.float32],
    sampling: Sampling,
    position: int,
) -> int | None:
    """Return the token at `position` of a sequence, or None if the candidates do not determine it.

    Args:
        logits: the row's largest logits, in any order.
        token_ids: their tokens.
        block_mass: the sums of the blocks' weights.
        sampling: how to sample.
        position: the token's position in its sequence.
    """
    order = np.lexsort((token_ids, -logits))
    logits, token_ids = logits[order], token_ids[order]
    weights = _weights(logits, float(logits[0]), sampling)
    held = np.cumsum(weights)
    mass = block_mass.sum(dtype=np.float64)
    first, last = np.searchsorted(held, sampling.top_p * mass * np.array([1.0 - _TOLERANCE, 1.0 + _TOLERANCE]))
    size = int(last) + 1
    # a token outside the candidates may weigh as much as the last candidate
    if first != last or size > len(weights) or weights[size - 1] <= weights[-1]:
        return None
    return int(token_ids[invert(weights[:size], uniform(sampling.seed, position))])


def find_block(block_mass: NDArray[np.float32], sampling: Sampling, position: int) -> int | None:
    """Return the block in which a draw from all tokens ends, or None if the sums do not determine it."""
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
    """Return the token at `position`, or None if the block from `find_block` does not determine it.

    `logits` are the block's, `peak` is the largest logit of the whole row.
    """
    before = block_mass[:block].sum(dtype=np.float64)
    held = before + np.cumsum(_weights(logits, peak, sampling))
    place = _only(held, block_mass.sum(dtype=np.float64), sampling, position)
    return None if place is None else block * BLOCK_TOKENS + place


def _weights(logits: NDArray[np.float32], peak: float, sampling: Sampling) -> NDArray[np.float64]:
    """Return the weights exactly as `workers.engine.sampling` computes them, so that their sums are identical."""
    with np.errstate(under="ignore"):
        weights: NDArray[np.float64] = np.exp((logits - np.float64(peak)) / sampling.temperature)
    return weights


def _only(held: NDArray[np.float64], total: float, sampling: Sampling, position: int) -> int | None:
    """Return the index at which the cumulative sums pass the draw, if it is the same for all errors within the
    tolerance."""
    target = uniform(sampling.seed, position) * total
    margin = _TOLERANCE * total
    first, last = np.searchsorted(held, (target - margin, target + margin), side="right")
    return int(first) if first == last < len(held) else None
