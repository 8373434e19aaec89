"""Products of 8-bit integers by explicit quantisation, as TensorRT fuses them into its INT8 kernels.

    value ─ QuantizeLinear ─ DequantizeLinear ─┐
                                               ├─ MatMul
    levels (int8) ────────── DequantizeLinear ─┘

Activations have one static scale a tensor, matrices one a row of `[out, in]`; both are symmetric: zero points are 0.
https://docs.nvidia.com/deeplearning/tensorrt/latest/inference-library/work-quantized-types.html
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from workers.graph.checkpoint import Float32Array
from workers.graph.matrices import PlainMatrices
from workers.graph.quantize import Int8Matrix


@dataclass(frozen=True, slots=True)
class Int8Linear:
    """A matrix in 8 bits, and the step of the activations that it is multiplied by.

    Without a step the activations stay as they are: only the weights' memory is smaller (weight-only quantisation).
    """

    matrix: Int8Matrix
    activation_scale: float | None


@dataclass(slots=True)
class QdqMatrices(PlainMatrices):
    """The products named in `linears` are of 8-bit matrices, the others as `PlainMatrices` has them.

    The matrix that `linear` is given counts for nothing where `linears` has one of its name.
    """

    linears: Mapping[str, Int8Linear] = field(default_factory=dict)
    _rounded_values: dict[tuple[str, float], str] = field(default_factory=dict, init=False)

    def linear(self, name: str, matrix: Float32Array, bias: Float32Array | None, value: str) -> str:
        int8 = self.linears.get(name)
        if int8 is None:
            return PlainMatrices.linear(self, name, matrix, bias, value)
        if int8.activation_scale is not None:
            value = self._rounded_value(name, value, int8.activation_scale)
        self.graph.weight(f"{name}.levels", int8.matrix.levels.T)
        self.graph.weight(f"{name}.scales", int8.matrix.scales.astype(self.dtype))
        operands = [f"{name}.levels", f"{name}.scales"]
        weight = self.graph.node("DequantizeLinear", operands, [f"{name}.weight"], axis=1)
        return self.biased(name, self.graph.node("MatMul", [value, weight], [f"{name}.out"]), bias)

    def _rounded_value(self, name: str, value: str, scale: float) -> str:
        """`value` to the nearest step, once for all products that share it."""
        known = self._rounded_values.get((value, scale))
        if known is not None:
            return known
        step = self.graph.constant(f"{name}.step", np.array(scale, self.dtype))
        zero = self.graph.constant("zero_point", np.array(0, np.int8))
        levels = self.graph.node("QuantizeLinear", [value, step, zero], [f"{name}.in.levels"])
        rounded = self.graph.node("DequantizeLinear", [levels, step, zero], [f"{name}.in"])
        self._rounded_values[value, scale] = rounded
        return rounded
