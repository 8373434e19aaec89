"""Products of 8-bit numbers by explicit quantisation, as TensorRT fuses them into its INT8 and FP8 kernels.

    value ─ QuantizeLinear ─ DequantizeLinear ─┐
                                               ├─ MatMul
    levels (8 bits) ──────── DequantizeLinear ─┘

Activations have one static scale a tensor, matrices one a row of `[out, in]`; both are symmetric: zero points are 0.
https://docs.nvidia.com/deeplearning/tensorrt/latest/inference-library/work-quantized-types.html
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from workers.graph.eight_bit.matrices import PlainMatrices
from workers.graph.eight_bit.quantize import Grid, RoundedMatrix
from workers.graph.sources.checkpoint import Float32Array


@dataclass(frozen=True, slots=True)
class RoundedLinear:
    """A matrix in 8 bits, and the step of the activations that it is multiplied by.

    Without a step the activations stay as they are: only the weights' memory is smaller (weight-only quantisation).
    """

    matrix: RoundedMatrix
    activation_scale: float | None


@dataclass(slots=True)
class QdqMatrices(PlainMatrices):
    """The products named in `linears` are of 8-bit matrices, the others as `PlainMatrices` has them.

    The matrix that `linear` is given counts for nothing where `linears` has one of its name.
    """

    linears: Mapping[str, RoundedLinear] = field(default_factory=dict)
    _rounded_values: dict[tuple[str, float], str] = field(default_factory=dict, init=False)

    def linear(self, name: str, matrix: Float32Array, bias: Float32Array | None, value: str) -> str:
        linear = self.linears.get(name)
        if linear is None:
            return PlainMatrices.linear(self, name, matrix, bias, value)
        if linear.activation_scale is not None:
            value = self._rounded_value(name, value, linear.activation_scale, linear.matrix.grid)
        levels = np.ascontiguousarray(linear.matrix.levels.T)
        placement = self.graph.store(levels.view(np.uint8))
        self.graph.weight_at(f"{name}.levels", placement, levels.dtype, levels.shape)
        self.graph.weight(f"{name}.scales", linear.matrix.scales.astype(self.dtype))
        operands = [f"{name}.levels", f"{name}.scales"]
        weight = self.graph.node("DequantizeLinear", operands, [f"{name}.weight"], axis=1)
        return self.biased(name, self.graph.node("MatMul", [value, weight], [f"{name}.out"]), bias)

    def _rounded_value(self, name: str, value: str, scale: float, grid: Grid) -> str:
        """`value` to the nearest step, once for all products that share it."""
        known = self._rounded_values.get((value, scale))
        if known is not None:
            return known
        step = self.graph.constant(f"{name}.step", np.array(scale, self.dtype))
        zero = self.graph.constant(f"zero_point.{grid.name}", np.zeros((), grid.dtype))
        levels = self.graph.node("QuantizeLinear", [value, step, zero], [f"{name}.in.levels"])
        rounded = self.graph.node("DequantizeLinear", [levels, step, zero], [f"{name}.in"])
        self._rounded_values[value, scale] = rounded
        return rounded
