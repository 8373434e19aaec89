"""Rounds a matrix to 8 bits so that later columns make up for what earlier ones lost (GPTQ, arXiv 2210.17323). Pure."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from workers.graph.eight_bit.grids import Grid
from workers.graph.eight_bit.quantize import RoundedMatrix, row_scales
from workers.graph.sources.checkpoint import Float32Array

# Columns whose errors are passed on at once to all behind them.
_BLOCK: Final = 32
# Columns of a triangular matrix that are inverted at once.
_WHOLE: Final = 64


def round_compensated(matrix: Float32Array, gram: Float32Array, grid: Grid, *, damping: float) -> RoundedMatrix:
    """Round `matrix` `[out, in]` by row, one scale each, for inputs whose mean outer product is `gram` `[in, in]`.

    `damping` is added to the diagonal, as a share of its mean: it stands for inputs that were not sampled. Raises
    `ModelError` where a weight is not finite.
    """
    scales = row_scales(matrix, grid)
    return RoundedMatrix(grid, compensated_levels(matrix, scales, gram, grid, damping=damping), scales)


def compensated_levels(
    matrix: Float32Array, scales: Float32Array, gram: Float32Array, grid: Grid, *, damping: float
) -> NDArray[Any]:
    """The levels `[out, in]` of `matrix` in steps of `scales` `[out]`, rounded as `round_compensated` does."""
    return levels_by(passed_on_by(gram, damping), matrix, scales, grid)


def levels_by(passed_on: Float32Array, matrix: Float32Array, scales: Float32Array, grid: Grid) -> NDArray[Any]:
    """The same by what `passed_on_by` gave: one for all matrices that multiply the same inputs."""
    # A column after the other: each lies in one piece.
    rest = np.array(matrix.T, np.float32, order="C")
    levels = np.empty(rest.shape, grid.dtype)
    for start in range(0, len(rest), _BLOCK):
        block = slice(start, start + _BLOCK)
        missed = _round_block(rest[block], passed_on[block, block], scales, levels[block], grid)
        rest[start + _BLOCK :] -= passed_on[block, start + _BLOCK :].T @ missed
    return np.ascontiguousarray(levels.T)


def passed_on_by(gram: Float32Array, damping: float) -> Float32Array:
    """The upper Cholesky factor `[in, in]` of the inverse of `gram`, damped: row `i` says how column `i`'s error goes
    to the columns behind it."""
    damped = gram.astype(np.float64)
    diagonal = np.diag_indices(len(damped))
    damped[diagonal] += damping * np.mean(damped[diagonal]) + np.finfo(np.float32).tiny
    # That of the matrix itself from behind, inverted: a third of the work of inverting the whole.
    lower = np.linalg.cholesky(damped[::-1, ::-1]).astype(np.float64, copy=False)
    return _inverted(lower)[::-1, ::-1].astype(np.float32)


def _inverted(lower: NDArray[np.float64]) -> NDArray[np.float64]:
    """The inverse of a triangular matrix, half by half."""
    if len(lower) <= _WHOLE:
        return np.tril(np.linalg.inv(lower))
    half = len(lower) // 2
    inverse = np.zeros_like(lower)
    first, second = _inverted(lower[:half, :half]), _inverted(lower[half:, half:])
    inverse[:half, :half], inverse[half:, half:] = first, second
    inverse[half:, :half] = -second @ (lower[half:, :half] @ first)
    return inverse


def _round_block(
    rest: Float32Array, passed_on: Float32Array, scales: Float32Array, levels: NDArray[Any], grid: Grid
) -> Float32Array:
    """Fill `levels`; `rest`, the block's columns, is used up. Returns each column's error by its own share."""
    missed = np.empty_like(rest)
    for column in range(len(rest)):
        nearest = grid.levels(rest[column] / scales)
        levels[column] = nearest
        missed[column] = (rest[column] - nearest * scales) / passed_on[column, column]
        rest[column + 1 :] -= passed_on[column, column + 1 :, np.newaxis] * missed[column]
    return missed
