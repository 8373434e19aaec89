"""The rotary embedding's frequencies and tables: https://arxiv.org/abs/2104.09864, and how contexts are stretched."""

import math

import numpy as np
from numpy.typing import NDArray

from shared.model.folder import Architecture, FactorScaling, LinearScaling, Llama3Scaling


def rotary_tables(architecture: Architecture, positions: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Cosines and sines `[positions, head_dim / 2]` of each pair's angle at each position."""
    angles = np.outer(np.arange(positions), frequencies(architecture))
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def frequencies(architecture: Architecture) -> NDArray[np.float64]:
    """Radians a token by which each of the `head_dim / 2` pairs turns, fastest first."""
    head_dim = architecture.head_dim
    plain = architecture.rope_theta ** -(np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    match architecture.rope_scaling:
        case None:
            return plain
        case LinearScaling(factor=factor):
            return plain / factor
        case FactorScaling(factors=factors):
            return plain / np.array(factors, dtype=np.float64)
        case Llama3Scaling() as scaling:
            return _llama3(plain, scaling)


def _llama3(plain: NDArray[np.float64], scaling: Llama3Scaling) -> NDArray[np.float64]:
    turns = plain * scaling.original_positions / (2 * math.pi)
    kept = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    kept = np.clip(kept, 0, 1)
    return plain * (kept + (1 - kept) / scaling.factor)
