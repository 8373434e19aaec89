"""Products of 8-bit numbers with one scale for each row of activations and one for each row of a matrix.

A row's activations are rounded by the largest of them and of no other row, and sums of 8-bit products are whole
numbers: a row's result depends neither on its neighbours nor on the order in which a kernel adds. MatMulIntegerToFloat
is computed by the units for 8-bit products where a CPU has them (VNNI, AMX), so that many rows cost little more than
one; MatMulNBits, with a scale for every 32 or 64 weights, spends most of its time on the scales.

One scale a row is enough where numbers are spread evenly (`workers/graph/eight_bit/turned.py`). What `down_proj`
multiplies comes out of a product of two values, so nothing that lies before it can spread it: it is turned where it is
used, by a small Hadamard matrix, block by block.

Even so a row of activations loses more than blocks of 32 would. In the layers it is rounded twice, what the first
rounding missed being rounded in steps 254 times finer, and multiplied by the same matrix twice. Of what the head
multiplies the usual value is taken off first, whose logits are added to the product: only the rest is rounded.

Of its logits the few largest are then computed again (`workers/graph/eight_bit/straight_tables.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shared.errors import ModelError
from workers.graph.eight_bit.builder import GraphBuilder
from workers.graph.eight_bit.straight_tables import StraightTables
from workers.graph.sources.checkpoint import Float32Array

_LARGEST: Final = 127
_MIDDLE: Final = 128
# Of a row of zeros, which are zeros by any scale.
_LEAST: Final = 1e-30
_UNEVEN: Final = "down_proj"
_WIDEST: Final = 128
_TWICE: Final = ("qkv", "o_proj", "gate_proj", "up_proj", "down_proj")
# Half a step is 127 of these.
_FINER: Final = 254


@dataclass(frozen=True, slots=True)
class RoundedRows:
    """A matrix `[out, in]`: a weight is `levels`, within ±127, times its row's of `scales` `[out]`; where there are
    `fine_levels`, these times a 254th of the scale are added. `centre` `[in]` is taken off what is multiplied before
    that is rounded."""

    levels: NDArray[np.int8]
    scales: Float32Array
    centre: Float32Array | None = None
    fine_levels: NDArray[np.int8] | None = None


def quantize_rows(matrix: Float32Array) -> RoundedRows:
    """Each weight of a matrix `[out, in]` to the nearest. Raises `ModelError` where one is not finite."""
    scales = row_steps(matrix)
    return RoundedRows(np.rint(matrix / scales[:, np.newaxis]).astype(np.int8), scales)


def quantize_rows_twice(matrix: Float32Array) -> RoundedRows:
    """Likewise, and what was missed rounded again: twice the bytes, and next to nothing is lost. Raises likewise."""
    rows = quantize_rows(matrix)
    missed = matrix / rows.scales[:, np.newaxis] - rows.levels
    return replace(rows, fine_levels=np.clip(np.rint(missed * _FINER), -_LARGEST, _LARGEST).astype(np.int8))


def row_steps(matrix: Float32Array) -> Float32Array:
    """The scales `[out]` by which each row's largest weight stands at level 127. Raises as `quantize_rows` does."""
    peaks = np.abs(matrix).max(1)
    if not np.isfinite(peaks).all():
        raise ModelError("a matrix holds weights that are not finite; fetch the model again")
    scales: Float32Array = np.maximum(peaks / np.float32(_LARGEST), np.float32(_LEAST))
    return scales


def is_spread(name: str) -> bool:
    """Whether linear `name` has its input and its matrix turned where it is used."""
    return name.endswith(_UNEVEN)


def is_rounded_twice(name: str) -> bool:
    """Whether what linear `name` multiplies is rounded a second time, so that next to nothing of it is lost."""
    return name.endswith(_TWICE)


def spread(values: Float32Array) -> Float32Array:
    """`[n, channels]`, turned block by block."""
    turning = _turning(values.shape[1])
    return (values.reshape(-1, len(turning)) @ turning).reshape(values.shape)


def hadamard(size: int) -> Float32Array:
    """An orthogonal matrix `[size, size]` whose numbers are all of one size, for a power of two."""
    matrix = np.ones((1, 1), np.float64)
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    even: Float32Array = (matrix / np.sqrt(size)).astype(np.float32)
    return even


def _turning(channels: int) -> Float32Array:
    return hadamard(min(channels & -channels, _WIDEST))


@dataclass(slots=True)
class RowInt8Matrices:
    """`rounded` are the matrices, as they are multiplied, that something better was found for than the nearest."""

    graph: GraphBuilder
    tables: StraightTables
    rounded: Mapping[str, RoundedRows] = field(default_factory=dict)
    # Of each value that is multiplied: its levels, and the largest number of each row.
    _levels: dict[str, tuple[str, str]] = field(default_factory=dict)
    _missed: dict[str, str] = field(default_factory=dict)
    _biased: set[str] = field(default_factory=set)
    _finer: set[str] = field(default_factory=set)

    def linear(self, name: str, matrix: Float32Array, bias: Float32Array | None, value: str) -> str:
        if is_spread(name):
            matrix, value = spread(matrix), self._spread(name, value, matrix.shape[1])
        self._store(name, matrix, bias)
        return self._multiply(name, value, f"{name}.out")

    def store_table(self, name: str, table: Float32Array, *, projects: bool) -> None:
        if projects:
            self._store(name, table, None)
            self.tables.store_head(name)
        else:
            self.tables.store_embedding(name)

    def look_up(self, table: str, indices: str, output: str) -> str:
        return self.tables.look_up(table, indices, output)

    def project(self, table: str, value: str, output: str) -> str:
        logits = self._multiply(table, value, f"{output}.rounded")
        return self.tables.correct(logits, value, output)

    def _store(self, name: str, matrix: Float32Array, bias: Float32Array | None) -> None:
        rows = self.rounded.get(name) or quantize_rows(matrix)
        self.graph.weight(f"{name}.levels", np.ascontiguousarray(rows.levels.T))
        self.graph.weight(f"{name}.scales", rows.scales / np.float32(_LARGEST))
        if is_rounded_twice(name):
            self.graph.weight(f"{name}.fine_scales", rows.scales / np.float32(_LARGEST * _FINER))
            if rows.fine_levels is not None:
                self.graph.weight(f"{name}.fine_levels", np.ascontiguousarray(rows.fine_levels.T))
                self._finer.add(name)
        if rows.centre is not None:
            usual = matrix @ rows.centre
            bias = usual if bias is None else bias + usual
        if bias is not None:
            self.graph.weight(f"{name}.bias", bias)
            self._biased.add(name)

    def _spread(self, name: str, value: str, channels: int) -> str:
        """`spread` in the graph."""
        turning = _turning(channels)
        self.graph.constant("spread", turning)
        split = self.graph.constant("split", np.array([-1, len(turning)], np.int64))
        by_blocks = self.graph.node("Reshape", [value, split], [f"{name}.split"])
        turned = self.graph.node("MatMul", [by_blocks, "spread"], [f"{name}.spread_blocks"])
        shape = self.graph.node("Shape", [value], [f"{name}.shape"])
        return self.graph.node("Reshape", [turned, shape], [f"{name}.spread"])

    def _multiply(self, name: str, value: str, output: str) -> str:
        levels, peaks = self._round(name, value)
        middle = self.graph.constant("middle", np.array(_MIDDLE, np.uint8))

        def product(factor: str, matrix: str, scales: str, result: str) -> str:
            factors = [factor, f"{name}.{matrix}", peaks, f"{name}.{scales}", middle]
            return self.graph.contrib_node("MatMulIntegerToFloat", factors, [result])

        added = []
        if is_rounded_twice(name):
            added.append(product(self._round_missed(value), "levels", "fine_scales", f"{name}.fine"))
        if name in self._finer:
            added.append(product(levels, "fine_levels", "fine_scales", f"{name}.finer"))
        if name in self._biased:
            # The operator's own bias would be scaled with the row.
            added.append(f"{name}.bias")
        total = product(levels, "levels", "scales", f"{name}.coarse" if added else output)
        for left, other in zip(range(len(added) - 1, -1, -1), added, strict=True):
            total = self.graph.node("Add", [total, other], [f"{name}.without_{left}" if left else output])
        return total

    def _round(self, name: str, value: str) -> tuple[str, str]:
        """Levels uint8 of 1 to 255 about 128, and each row's largest number: the step times 127.

        A row of zeros has no levels that mean anything, and its largest number makes zeros of them. Linears that
        multiply the same value have the same centre.
        """
        if value not in self._levels:
            constant, node, rows = self.graph.constant, self.graph.node, self.rounded.get(name)
            centred = value
            if rows is not None and rows.centre is not None:
                self.graph.weight(f"{name}.away", -rows.centre)
                centred = node("Add", [value, f"{name}.away"], [f"{value}.centred"])
            node("Abs", [centred], [f"{value}.sizes"])
            axis = constant("row_axis", np.array([-1], np.int64))
            peaks = node("ReduceMax", [f"{value}.sizes", axis], [f"{value}.peaks"], keepdims=1)
            node("Div", [centred, peaks], [f"{value}.shares"])
            step = constant("level", np.array(1 / _LARGEST, np.float32))
            middle = constant("middle", np.array(_MIDDLE, np.uint8))
            levels = node("QuantizeLinear", [f"{value}.shares", step, middle], [f"{value}.levels"])
            self._levels[value] = levels, peaks
        return self._levels[value]

    def _round_missed(self, value: str) -> str:
        """Levels of what rounding `value` left, in 254ths of its step."""
        if value not in self._missed:
            constant, node = self.graph.constant, self.graph.node
            levels, _ = self._levels[value]
            step, middle = (
                constant("level", np.array(1 / _LARGEST, np.float32)),
                constant("middle", np.array(_MIDDLE, np.uint8)),
            )
            node("DequantizeLinear", [levels, step, middle], [f"{value}.rounded"])
            node("Sub", [f"{value}.shares", f"{value}.rounded"], [f"{value}.missed"])
            fine_step = constant("fine_level", np.array(1 / _LARGEST / _FINER, np.float32))
            self._missed[value] = node(
                "QuantizeLinear", [f"{value}.missed", fine_step, middle], [f"{value}.missed_levels"]
            )
        return self._missed[value]
