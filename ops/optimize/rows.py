"""Rounds the turned decoder's matrices to 8 bits a row, by what enters them while it reads a few texts.

By the mean outer product of a matrix's input later columns make up for what earlier ones lost
(`ops/optimize/rounding.py`). Of the head's input the mean is found as well, to be taken off before it is rounded
(`workers/graph/row_int8.py`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ops.optimize.forward import NumpyDialect
from ops.optimize.rounding import compensated_levels
from workers.graph.checkpoint import Checkpoint, Float32Array
from workers.graph.decoder import Decoder
from workers.graph.grids import INT8
from workers.graph.row_int8 import RoundedRows, is_rounded_twice, is_spread, quantize_rows, row_steps, spread
from workers.graph.turned import turned

_HEAD: Final = "lm_head"
# What enters these is as large as attention or a gate made it, and the stream they add to is normed afterwards: each
# token counts by what it adds, not by its size. What enters the others is normed.
_INTO_STREAM: Final = ("o_proj", "down_proj")
# For inputs that were not read, and for what their own rounding adds.
_DAMPING: Final = 0.02
# Columns that make up for each other: what it takes grows with the cube of their number.
_TOGETHER: Final = 2_048


def fitted_rows(
    checkpoint: Checkpoint, texts: Sequence[Sequence[int]], progress: Callable[[float], None] = lambda _fraction: None
) -> dict[str, RoundedRows]:
    """Have the decoder, turned, read `texts`, each of two tokens at least; its matrices, rounded, by linear.

    Raises `ModelError` where a weight is not finite.
    """
    checkpoint = turned(checkpoint)
    fit = _Fit()
    reader = _Reader(checkpoint.architecture, texts, fit)
    # Weights that are not finite are refused where they are rounded.
    with np.errstate(all="ignore"):
        Decoder(checkpoint, reader).build(progress)
    return fit.rounded


@dataclass(frozen=True, slots=True)
class _Fit:
    """`Products` as the checkpoint has them; keeps each matrix rounded."""

    rounded: dict[str, RoundedRows] = field(default_factory=dict)

    def multiply(self, name: str, value: Float32Array, matrix: Float32Array) -> Float32Array:
        # Logits are of no use here.
        product = value if name == _HEAD else value @ matrix.T
        weights = np.full(len(value), 1 / len(value), np.float32)
        if name.endswith(_INTO_STREAM):
            weights = _shares(product)
        if is_spread(name):
            matrix, value = spread(matrix), spread(value)
        # Where next to nothing of an input is lost, there is nothing to gain by its usual value.
        self.rounded[name] = fitted(matrix, value, weights, centred=not is_rounded_twice(name))
        return product


class _Reader(NumpyDialect):
    """Shows its products what is projected of every token, in place of its logits."""

    __slots__ = ()

    def logits(self, head: Float32Array | None, normed: str) -> None:
        self.products.multiply(_HEAD, self._values[normed], self._table if head is None else head)


def fitted(matrix: Float32Array, values: Float32Array, weights: Float32Array, *, centred: bool) -> RoundedRows:
    """`matrix` `[out, in]` rounded for `values` `[tokens, in]`, of which each token counts by its share of `weights`
    `[tokens]`, that add up to 1. Raises `ModelError` where a weight is not finite."""
    scales = row_steps(matrix)
    centre = weights @ values if centred else None
    left = values if centre is None else values - centre
    left = left * np.sqrt(weights)[:, np.newaxis]
    if not np.isfinite(left).all() or not left.any():
        return quantize_rows(matrix)
    levels = np.empty(matrix.shape, np.int8)
    for start in range(0, matrix.shape[1], _TOGETHER):
        part = slice(start, start + _TOGETHER)
        gram = left[:, part].T @ left[:, part]
        levels[:, part] = compensated_levels(matrix[:, part], scales, gram, INT8, damping=_DAMPING)
    return RoundedRows(levels, scales, centre)


def _shares(products: Float32Array) -> Float32Array:
    """Weights `[tokens]` by which tokens count alike, whatever their size."""
    weights = 1 / np.maximum(np.square(products).sum(axis=1), np.finfo(np.float32).tiny)
    shares: Float32Array = weights / weights.sum()
    return shares
