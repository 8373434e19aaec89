"""The numbers that 8 bits can be, in multiples of a step: integers, or E4M3's floating point (arXiv 2209.05433). Pure.

Both as ONNX's QuantizeLinear and DequantizeLinear have them: to the nearest, of two equally near to the even one, and
cut off at the outermost.
"""

from typing import Any, Final, Literal, Protocol

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Float32Array = NDArray[np.float32]
GridName = Literal["int8", "fp8"]


class Grid(Protocol):
    """`largest` is the level that a row's largest weight is given, `edge` where values of activations are cut off."""

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
