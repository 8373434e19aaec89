"""8-bit weights: in blocks for ONNX Runtime's MatMulNBits and GatherBlockQuantized, by row for TensorRT."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shared.errors import ModelError

BLOCK_SIZE: Final = 32
ZERO_POINT: Final = 128
_LARGEST: Final = 127
_SMALLEST_HALF: Final = np.float32(np.finfo(np.float16).tiny)
_LARGEST_HALF: Final = np.float32(np.finfo(np.float16).max)


@dataclass(frozen=True, slots=True)
class Int8Matrix:
    """A weight is `levels[row, column] * scales[row]`: int8 `[out, in]` within ±127, float32 `[out]`.

    Every scale is a float16, so that the levels are the same whether products are computed in float16 or float32.
    """

    levels: NDArray[np.int8]
    scales: NDArray[np.float32]

    def divided(self, rows: NDArray[np.float32]) -> "Int8Matrix":
        """The same levels for a matrix whose rows are divided by `rows` `[out]`, the scales rounded anew."""
        return Int8Matrix(self.levels, half_scale(self.scales / rows))

    def dequantized(self) -> NDArray[np.float32]:
        """The float32 matrix that products are computed by."""
        return self.levels * self.scales[:, np.newaxis]


def quantize(weight: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Round a matrix `[n, k]` to 8 bits, symmetrically, in blocks of 32 along `k`.

    Returns the bytes `[n, k / 32, 32]`, stored with the implied zero point 128, and the scales `[n, k / 32]`; a
    weight is `(byte - 128) * scale`. Raises `ModelError` where `k` is no multiple of 32 or a weight is not finite.
    """
    rows, columns = weight.shape
    if columns % BLOCK_SIZE:
        raise ModelError(f"8-bit blocks need rows of a multiple of {BLOCK_SIZE} weights, got {columns}; use fp32")
    blocks = weight.reshape(rows, columns // BLOCK_SIZE, BLOCK_SIZE)
    peaks = _peaks(blocks)
    scales = (peaks / np.float32(_LARGEST)).astype(np.float32)
    # A block of zeros, or one so small that its scale underflows, is stored as zeros.
    inverse = np.divide(np.float32(1), scales, out=np.zeros_like(scales), where=scales > np.finfo(np.float32).tiny)
    levels = blocks * inverse[..., np.newaxis]
    np.rint(levels, out=levels)
    levels += ZERO_POINT
    return levels.astype(np.uint8), scales


def row_scales(weight: NDArray[np.float32]) -> NDArray[np.float32]:
    """The step `[out]` by which each row of a matrix `[out, in]` reaches its largest weight at level ±127.

    Raises `ModelError` where a weight is not finite.
    """
    return half_scale(_peaks(weight) / np.float32(_LARGEST))


def half_scale(scale: NDArray[np.float32]) -> NDArray[np.float32]:
    """Steps as float16 holds them, rounded up, never subnormal: the largest level is not exceeded by rounding."""
    within = np.clip(scale, _SMALLEST_HALF, _LARGEST_HALF).astype(np.float32)
    half = within.astype(np.float16)
    lower = half.astype(np.float32) < within
    return np.where(lower, np.nextafter(half, np.float16(np.inf)), half).astype(np.float32)


def quantize_rows(weight: NDArray[np.float32]) -> Int8Matrix:
    """Round a matrix `[out, in]` to 8 bits, one scale a row. Raises `ModelError` as `row_scales` does."""
    scales = row_scales(weight)
    levels = np.rint(weight / scales[:, np.newaxis])
    return Int8Matrix(np.clip(levels, -_LARGEST, _LARGEST).astype(np.int8), scales)


def round_to_step(values: NDArray[np.float32], step: float) -> NDArray[np.float32]:
    """What QuantizeLinear and DequantizeLinear to int8 make of `values`: multiples of `step` from -128 to 127 times."""
    levels: NDArray[np.float32] = np.rint(values / np.float32(step))
    np.clip(levels, -_LARGEST - 1, _LARGEST, out=levels)
    levels *= np.float32(step)
    return levels


def _peaks(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """The largest magnitude along the last axis."""
    peaks: NDArray[np.float32] = np.maximum(weights.max(axis=-1), -weights.min(axis=-1))
    if not np.isfinite(peaks).all():
        raise ModelError("the checkpoint holds weights that are not finite; fetch it again")
    return peaks
