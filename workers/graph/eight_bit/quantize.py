"""Round a weight matrix to 8 bits: in blocks of a row, each with its scale, for ONNX Runtime's MatMulNBits and
GatherBlockQuantized; or with one scale per row for TensorRT."""

from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from shared.errors import ModelError

Float32Array = NDArray[np.float32]
GridName = Literal["int8", "fp8"]


class Grid(Protocol):
    """The numbers that 8 bits can be, in multiples of a step: integers, or E4M3's floating point (arXiv 2209.05433); as
    ONNX's QuantizeLinear has them, to the nearest, of two equally near to the even one, cut off at the outermost.
    `largest` is the level that a row's largest weight is given, `edge` where values of activations are cut off."""

    @property
    def name(self) -> GridName: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def largest(self) -> float: ...
    @property
    def edge(self) -> float: ...

    def levels(self, multiples: Float32Array) -> Float32Array:
        """Weights, in multiples of their step, to the nearest level within `largest`."""

    def rounded(self, values: Float32Array, step: float) -> Float32Array:
        """Activations to levels of `step` and back."""


class Int8Grid:
    name: GridName = "int8"
    dtype = np.dtype(np.int8)
    largest = 127.0
    edge = 127.5

    def levels(self, multiples: Float32Array) -> Float32Array:
        return np.clip(np.rint(multiples), -self.largest, self.largest)

    def rounded(self, values: Float32Array, step: float) -> Float32Array:
        levels: Float32Array = np.rint(values / np.float32(step))
        np.clip(levels, -self.largest - 1, self.largest, out=levels)
        levels *= np.float32(step)
        return levels


class Fp8Grid:
    """E4M3 without infinities: three bits of mantissa, from 2**-9 to 448."""

    name: GridName = "fp8"
    dtype = np.dtype(ml_dtypes.float8_e4m3fn)
    largest = 448.0
    edge = 464.0

    def levels(self, multiples: Float32Array) -> Float32Array:
        within = np.clip(multiples, -self.largest, self.largest)
        return within.astype(self.dtype).astype(np.float32)

    def rounded(self, values: Float32Array, step: float) -> Float32Array:
        levels = self.levels(values / np.float32(step))
        levels *= np.float32(step)
        return levels


INT8: Final = Int8Grid()
FP8: Final = Fp8Grid()
GRIDS: Final[dict[GridName, Grid]] = {grid.name: grid for grid in (INT8, FP8)}


BLOCK_SIZE: Final = 32
ZERO_POINT: Final = 128
_LARGEST: Final = 127
# A block's largest weight is at this level or above: below, steps are too coarse for the search to gain.
_LOWEST_PEAK: Final = 64
# The sum of a block's squared errors, as a share of its largest weight squared, that is float32's own rounding.
_EXACT: Final = 1e-10
# Weights whose scales are searched at a time: what fits a core's cache.
_SEARCHED_WEIGHTS: Final = 262_144
_SMALLEST_HALF: Final = np.float32(np.finfo(np.float16).tiny)
_LARGEST_HALF: Final = np.float32(np.finfo(np.float16).max)


@dataclass(frozen=True, slots=True)
class RoundedMatrix:
    """A weight is `levels[row, column] * scales[row]`: `[out, in]` of the grid's type, float32 `[out]`.

    Every scale is a float16, so that the levels are the same whether products are computed in float16 or float32.
    """

    grid: Grid
    levels: NDArray[Any]
    scales: NDArray[np.float32]

    def dequantized(self) -> NDArray[np.float32]:
        """Return the float32 matrix that products are computed by."""
        return self.levels.astype(np.float32) * self.scales[:, np.newaxis]


def quantize(weight: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Round a matrix `[n, k]` to 8 bits, symmetrically, in blocks of 32 along `k`.

    Of the scales that put a block's largest weight at level 64 to 127, the one with the smallest error is chosen.
    Weights from a coarser grid (a GGUF's 4 or 5 bits) nearly fit one of these scales: their error is a third of that
    with level 127. Returns the bytes `[n, k / 32, 32]`, stored with the implied zero point 128, and the scales
    `[n, k / 32]`; a weight is `(byte - 128) * scale`. Raises `ModelError` if `k` is no multiple of 32 or a weight is
    not finite.
    """
    rows, columns = weight.shape
    if columns % BLOCK_SIZE:
        raise ModelError(f"8-bit blocks need rows of a multiple of {BLOCK_SIZE} weights, got {columns}; use fp32")
    blocks = weight.reshape(rows, columns // BLOCK_SIZE, BLOCK_SIZE)
    peaks = _peaks(blocks)
    scales = (peaks / _peak_levels(blocks, peaks)).astype(np.float32)
    # A block of zeros, or one so small that its scale underflows, is stored as zeros.
    inverse = np.divide(np.float32(1), scales, out=np.zeros_like(scales), where=scales > np.finfo(np.float32).tiny)
    levels = blocks * inverse[..., np.newaxis]
    np.rint(levels, out=levels)
    levels += ZERO_POINT
    return levels.astype(np.uint8), scales


def _peak_levels(blocks: NDArray[np.float32], peaks: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the level at which the largest weight of each block `[n, blocks, 32]` stands best: `[n, blocks]`, 64 to
    127."""
    levels = np.full(peaks.shape, _LARGEST, np.float32)
    for start in range(0, len(blocks), rows := max(1, _SEARCHED_WEIGHTS // max(1, blocks[0].size))):
        part = slice(start, start + rows)
        _search_levels(blocks[part], peaks[part], levels[part])
    return levels


def _search_levels(blocks: NDArray[np.float32], peaks: NDArray[np.float32], levels: NDArray[np.float32]) -> None:
    """Put the best of each block's levels into `levels`, the higher one where two are as good."""
    tiny = np.finfo(np.float32).tiny
    units = blocks * np.divide(np.float32(1), peaks, out=np.zeros_like(peaks), where=peaks > tiny)[..., np.newaxis]
    least = np.full(peaks.shape, np.inf, np.float32)
    for level in range(_LARGEST, _LOWEST_PEAK - 1, -1):
        missed = units * np.float32(level)
        missed -= np.rint(missed)
        error = np.einsum("...i,...i->...", missed, missed) / np.float32(level * level)
        better = error < least
        levels[better] = level
        np.minimum(least, error, out=least)
        # Weights that come from 8 bits already are on the first grid.
        if level == _LARGEST and float(least.max(initial=0)) < _EXACT:
            return


def row_scales(weight: NDArray[np.float32], grid: Grid) -> NDArray[np.float32]:
    """Return the step `[out]` by which each row of a matrix `[out, in]` has its largest weight at the grid's largest
    level.

    Raises `ModelError` if a weight is not finite.
    """
    return half_scale(_peaks(weight) / np.float32(grid.largest))


def half_scale(scale: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return steps as float16 holds them, rounded up, never subnormal: the largest level is not exceeded by
    rounding."""
    within = np.clip(scale, _SMALLEST_HALF, _LARGEST_HALF).astype(np.float32)
    half = within.astype(np.float16)
    lower = half.astype(np.float32) < within
    return np.where(lower, np.nextafter(half, np.float16(np.inf)), half).astype(np.float32)


def quantize_rows(weight: NDArray[np.float32], grid: Grid) -> RoundedMatrix:
    """Round a matrix `[out, in]` to a grid, one scale a row. Raises `ModelError` as `row_scales` does."""
    scales = row_scales(weight, grid)
    levels = grid.levels(weight / scales[:, np.newaxis])
    return RoundedMatrix(grid, levels.astype(grid.dtype), scales)


def _peaks(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the largest magnitude along the last axis."""
    peaks: NDArray[np.float32] = np.maximum(weights.max(axis=-1), -weights.min(axis=-1))
    if not np.isfinite(peaks).all():
        raise ModelError("the checkpoint holds weights that are not finite; fetch it again")
    return peaks
