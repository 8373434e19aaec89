"""Pick each row's next token from its logits: greedy, by temperature, or from the nucleus (top-p).

A token's random number is a function of (seed, position), so a sequence computed again in another batch gets the same
tokens.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shared.errors import EngineError
from workers.engine import Sampling

_MASK: Final = (1 << 64) - 1
_GOLDEN_GAMMA: Final = 0x9E3779B97F4A7C15


def sample(logits: NDArray[np.float32], samplings: Sequence[Sampling], positions: Sequence[int]) -> list[int]:
    """Return one token for each row of `logits` `[rows, vocabulary]`.

    Args:
        logits: the rows' logits; of equal ones greedy sampling takes the smallest id.
        samplings: how to sample each row.
        positions: the position of each row's token in its sequence, from 0.

    Raises:
        EngineError: a row has no finite maximum.
    """
    best = logits.argmax(axis=1)
    peaks = logits[np.arange(len(best)), best]
    if not np.isfinite(peaks).all():
        raise EngineError("the engine computed logits that are not finite; restart the worker")
    tokens: list[int] = best.tolist()
    for row, sampling in enumerate(samplings):
        if sampling.temperature > 0:
            draw = uniform(sampling.seed, positions[row])
            tokens[row] = _draw(logits[row], float(peaks[row]), sampling, draw)
    return tokens


def uniform(seed: int, position: int) -> float:
    """Return a number in [0, 1) from seed and position: SplitMix64's finaliser (Steele et al., OOPSLA 2014), applied
    twice."""
    return (split_mix(split_mix(seed) ^ position) >> 11) * 2.0**-53


def split_mix(value: int) -> int:
    """Return SplitMix64's step from state `value`: 64 well-mixed bits."""
    mixed = (value + _GOLDEN_GAMMA) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return mixed ^ (mixed >> 31)


def _draw(logits: NDArray[np.float32], peak: float, sampling: Sampling, draw: float) -> int:
    """Return the token at which the cumulative distribution reaches `draw`."""
    # a tiny temperature makes all but the peak minus infinity, which is greedy sampling
    with np.errstate(over="ignore", under="ignore"):
        weights = np.exp((logits - np.float64(peak)) / sampling.temperature)
    if sampling.top_p >= 1.0:
        return invert(weights, draw)
    tokens = _nucleus(weights, sampling.top_p)
    return int(tokens[invert(weights[tokens], draw)])


def _nucleus(weights: NDArray[np.float64], top_p: float) -> NDArray[np.int64]:
    """Return the fewest tokens that hold `top_p` of the mass, most likely first, equal ones by id (Holtzman et al.,
    2020).

    Only a part of the vocabulary is sorted: tokens below `(1 - top_p) / n` of the mass hold less than `1 - top_p` of it
    together, so the nucleus is among the rest.
    """
    total = weights.sum()
    candidates = np.flatnonzero(weights >= (1.0 - top_p) * total / weights.size)
    order = np.argsort(-weights[candidates], kind="stable")
    ranked: NDArray[np.int64] = candidates[order]
    size = int(np.searchsorted(np.cumsum(weights[ranked]), top_p * total)) + 1
    return ranked[:size]


def invert(weights: NDArray[np.float64], draw: float) -> int:
    """Return the index in `weights` at which their cumulative sum passes `draw` (in [0, 1)) of the total."""
    cumulative = np.cumsum(weights)
    index = int(np.searchsorted(cumulative, draw * cumulative[-1], side="right"))
    # Rounding can make `draw * total` equal the total; then the last token with any weight is meant.
    return min(index, int(np.searchsorted(cumulative, cumulative[-1])))
