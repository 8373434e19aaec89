"""8-bit weights as ONNX Runtime's MatMulNBits and GatherBlockQuantized read them."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from shared.errors import ModelError

BLOCK_SIZE: Final = 32
ZERO_POINT: Final = 128
_LARGEST: Final = 127


def quantize(weight: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Round a matrix `[n, k]` to 8 bits, symmetrically, in blocks of 32 along `k`.

    Returns the bytes `[n, k / 32, 32]`, stored with the implied zero point 128, and the scales `[n, k / 32]`; a
    weight is `(byte - 128) * scale`. Raises `ModelError` where `k` is no multiple of 32 or a weight is not finite.
    """
    rows, columns = weight.shape
    if columns % BLOCK_SIZE:
        raise ModelError(f"8-bit blocks need rows of a multiple of {BLOCK_SIZE} weights, got {columns}; use fp32")
    blocks = weight.reshape(rows, columns // BLOCK_SIZE, BLOCK_SIZE)
    peaks = np.maximum(blocks.max(axis=-1), -blocks.min(axis=-1))
    if not np.isfinite(peaks).all():
        raise ModelError("the checkpoint holds weights that are not finite; fetch it again")
    scales = (peaks / np.float32(_LARGEST)).astype(np.float32)
    # A block of zeros, or one so small that its scale underflows, is stored as zeros.
    inverse = np.divide(np.float32(1), scales, out=np.zeros_like(scales), where=scales > np.finfo(np.float32).tiny)
    levels = blocks * inverse[..., np.newaxis]
    np.rint(levels, out=levels)
    levels += ZERO_POINT
    return levels.astype(np.uint8), scales
