"""Rounds a matrix to 8 bits so that later columns make up for what earlier ones lost (GPTQ, arXiv 2210.17323). Pure."""

from typing import Final

import numpy as np

from workers.graph.checkpoint import Float32Array
from workers.graph.quantize import Int8Matrix, row_scales

_LARGEST: Final = 127
# Columns whose errors are passed on at once to all behind them.
_BLOCK: Final = 128


def round_compensated(matrix: Float32Array, gram: Float32Array, *, damping: float) -> Int8Matrix:
    """Round `matrix` `[out, in]` by row, one scale each, for inputs whose mean outer product is `gram` `[in, in]`.

    `damping` is added to the diagonal, as a share of its mean: it stands for inputs that were not sampled. Raises
    `ModelError` where a weight is not finite.
    """
    scales = row_scales(matrix)
    passed_on = _passed_on(gram, damping)
    rest = matrix.astype(np.float32)
    levels = np.empty(matrix.shape, np.int8)
    for start in range(0, matrix.shape[1], _BLOCK):
        block = slice(start, start + _BLOCK)
        missed = _round_block(rest[:, block], passed_on[block, block], scales, levels[:, block])
        rest[:, start + _BLOCK :] -= missed @ passed_on[block, start + _BLOCK :]
    return Int8Matrix(levels, scales)


def _passed_on(gram: Float32Array, damping: float) -> Float32Array:
    """The upper Cholesky factor of the inverse: row `i` says how column `i`'s error goes to the columns behind it."""
    damped = gram.astype(np.float64)
    diagonal = np.diag_indices(len(damped))
    damped[diagonal] += damping * np.mean(damped[diagonal]) + np.finfo(np.float32).tiny
    return np.linalg.cholesky(np.linalg.inv(damped)).T.astype(np.float32)


def _round_block(rest: Float32Array, passed_on: Float32Array, scales: Float32Array, levels: np.ndarray) -> Float32Array:
    """Fill `levels`; `rest`, the block's weights, is used up. Returns each column's error by its own share."""
    missed = np.empty_like(rest)
    for column in range(rest.shape[1]):
        nearest = np.clip(np.rint(rest[:, column] / scales), -_LARGEST, _LARGEST)
        levels[:, column] = nearest
        missed[:, column] = (rest[:, column] - nearest * scales) / passed_on[column, column]
        rest[:, column + 1 :] -= np.outer(missed[:, column], passed_on[column, column + 1 :])
    return missed
