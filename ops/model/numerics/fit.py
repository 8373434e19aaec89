"""Fits a place of an MLP to 8 bits: the factors that even its channels out, and the step of its activations. Pure.

A place is an activation and the matrices that multiply it: gate and up share the normed residual, down has the gated
product. What is minimised is the error of the products over sampled tokens, each token's relative to its own size: the
next norm makes tokens equal, and a few of them are a hundred times larger than the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from workers.graph.eight_bit.grids import Grid
from workers.graph.eight_bit.quantize import half_scale, quantize_rows
from workers.graph.sources.checkpoint import Float32Array

# 0 leaves all unevenness to the activations, 1 moves it into the matrices whole.
_STRENGTHS: Final = (0.0, 0.3, 0.5, 0.7, 0.85, 1.0)
_COARSE_CLIPS: Final = (1.0, 0.5)
_CLIPS: Final = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05)
# Factors beyond would push a norm's weight or a matrix out of float16's reach.
_LARGEST_FACTOR: Final = 1_024.0


@dataclass(frozen=True, slots=True)
class Samples:
    """Inputs `rows` `[tokens, in]` of a place, the largest magnitude `peaks` `[in]` of each channel over all of them,
    and the mean of their outer products `gram` `[in, in]`."""

    rows: Float32Array
    peaks: Float32Array
    gram: Float32Array


@dataclass(frozen=True, slots=True)
class Fitted:
    """`factors` `[in]` divide the input, which is then rounded to levels of `step`.

    `error` is the root of the mean of each token's squared relative error; `saturation` the share of sampled values
    beyond the outermost levels; `strength` and `clip` are what was chosen: SmoothQuant's alpha, and the share of the
    largest magnitude at which values are cut off.
    """

    factors: Float32Array
    step: float
    error: float
    saturation: float
    strength: float
    clip: float


def fit(samples: Samples, matrices: Sequence[Float32Array], grid: Grid) -> Fitted:
    """The best found for `matrices` `[out, in]` that multiply the same input, both sides being rounded to `grid`."""
    stacked = np.concatenate(matrices)
    wanted = samples.rows @ stacked.T
    weights = 1 / np.maximum(np.square(wanted).sum(axis=1), np.finfo(np.float32).tiny)

    def trial(strength: float, clips: Sequence[float]) -> Fitted:
        factors = smoothing_factors(samples.peaks, stacked, strength)
        rows, peak = samples.rows / factors, float(np.max(samples.peaks / factors))
        matrix = quantize_rows(stacked * factors, grid).dequantized().T

        def error(clip: float) -> float:
            missed = grid.rounded(rows, step_of(peak * clip, grid)) @ matrix - wanted
            return float(np.sqrt(np.mean(np.square(missed).sum(axis=1) * weights)))

        least, clip = min((error(clip), clip) for clip in clips)
        step = step_of(peak * clip, grid)
        saturation = float(np.mean(np.abs(rows) > step * grid.edge))
        return Fitted(factors, step, least, saturation, strength, clip)

    coarse = [trial(strength, _COARSE_CLIPS) for strength in _STRENGTHS]
    best = min(coarse, key=lambda fitted: fitted.error)
    return trial(best.strength, _CLIPS)


def smoothing_factors(peaks: Float32Array, matrix: Float32Array, strength: float) -> Float32Array:
    """SmoothQuant's `peaks ** a / columns ** (1 - a)`, their geometric mean 1; a channel that is never used has 1."""
    columns = np.abs(matrix).max(axis=0)
    used = (peaks > 0) & (columns > 0)
    if strength == 0 or not used.any():
        return np.ones_like(peaks)
    logs = strength * np.log(peaks[used]) - (1 - strength) * np.log(columns[used])
    limit = np.log(_LARGEST_FACTOR)
    factors = np.ones_like(peaks)
    factors[used] = np.exp(np.clip(logs - logs.mean(), -limit, limit))
    return factors


def step_of(peak: float, grid: Grid) -> float:
    """The step by which the outermost level stands for `peak`, as float16 holds it."""
    return float(half_scale(np.array(peak / grid.largest, np.float32)))
