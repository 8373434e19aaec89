"""Write the matrix products of a decoder into an ONNX graph, in each precision. Matrices have the shape `[out, in]`, as
in checkpoints.

The embedding and the output head have one row per token; both are called tables here. In some models they are the same
matrix ("tied"): its bytes are then stored once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper

from shared.errors import ModelError
from shared.model.folder import Precision
from workers.graph.eight_bit.builder import GraphBuilder, Placement
from workers.graph.eight_bit.quantize import BLOCK_SIZE, quantize
from workers.graph.native import NativeFile
from workers.graph.routing import Mixture, add_columns, add_one_hot
from workers.graph.sources.checkpoint import Blocks, Float32Array

_BITS: Final = 8
# accuracy_level 4 rounds activations to 8 bits as well, block by block, so that a row's result does not depend on its
# neighbours. With 0 (float32 activations) small batches take 5 to 30 times as long.
_INT8_ACTIVATIONS: Final = 4


class Matrices(Protocol):
    def linear(self, name: str, matrix: Float32Array, bias: Float32Array | None, value: str) -> str:
        """Multiply `value` `[…, in]` by `matrix` and add `bias`; returns the result's name."""

    def experts(self, name: str, mixture: Mixture, value: str, choice: tuple[str, str]) -> str:
        """Return the weighted sum of each row's experts in the shape of `value`. `choice` are the experts' numbers and
        weights `[rows, chosen]`."""

    def store_table(self, name: str, table: Float32Array, *, projects: bool) -> None:
        """Store a table `[vocabulary, hidden]` for `look_up`, and for `project` where it `projects`."""

    def look_up(self, table: str, indices: str, output: str) -> str:
        """Rows of a stored table, as value `output`."""

    def project(self, table: str, value: str, output: str) -> str:
        """Multiply `value` `[batch, hidden]` by a stored table: `[batch, vocabulary]`, as value `output`."""


def store_head(matrices: Matrices, head: Float32Array | None) -> str:
    """Store the output head if it is not the embedding; return the name of the table that `project` takes."""
    if head is None:
        return "embed_tokens"
    matrices.store_table("lm_head", head, projects=True)
    return "lm_head"


@dataclass(slots=True)
class PlainMatrices:
    """Matrices that are rounded to `dtype` alone, in which the products are computed too."""

    graph: GraphBuilder
    dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.float32))
    _widened: set[str] = field(default_factory=set, init=False)

    def linear(self, name: str, matrix: Float32Array, bias: Float32Array | None, value: str) -> str:
        self.graph.weight(f"{name}.weight", self._rounded(name, matrix.T))
        return self.biased(name, self.graph.node("MatMul", [value, f"{name}.weight"], [f"{name}.out"]), bias)

    def biased(self, name: str, product: str, bias: Float32Array | None) -> str:
        """`product` plus the bias of linear `name`, where it has one."""
        if bias is None:
            return product
        self.graph.weight(f"{name}.bias", self._rounded(name, bias))
        return self.graph.node("Add", [product, f"{name}.bias"], [f"{name}.biased"])

    def experts(self, name: str, mixture: Mixture, value: str, choice: tuple[str, str]) -> str:
        """Every expert computes every row: standard operators cannot choose."""
        graph, node = self.graph, self.graph.node
        count, width, hidden = mixture.experts.count, mixture.experts.width, mixture.router.shape[1]
        shapes = {"gate_proj": (count, hidden, width), "up_proj": (count, hidden, width)}
        for part, shape in (shapes | {"down_proj": (count, width, hidden)}).items():
            stored = graph.store_each(
                self._rounded(f"{name}.experts.{part}", matrix.T) for matrix in mixture.each(part)
            )
            graph.weight_at(f"{name}.experts.{part}.weight", stored, self.dtype, shape)
        flat = graph.constant("rows_of_hidden", np.array([-1, hidden], np.int64))
        rows = node("Reshape", [value, flat], [f"{name}.experts.rows"])
        gate, up = (
            node("MatMul", [rows, f"{name}.experts.{part}.weight"], [f"{name}.experts.{part}.out"]) for part in shapes
        )
        silu = node("Mul", [gate, node("Sigmoid", [gate], [f"{gate}.sigmoid"])], [f"{gate}.silu"])
        gated = node("Mul", [silu, up], [f"{name}.experts.gated"])
        down = node("MatMul", [gated, f"{name}.experts.down_proj.weight"], [f"{name}.experts.down_proj.out"])
        column = add_columns(graph, *choice, mixture.experts)
        weighted = node("Mul", [self.float32(down), column], [f"{name}.experts.weighted"])
        first = graph.constant("first_axis", np.array([0], np.int64))
        total = node("ReduceSum", [weighted, first], [f"{name}.experts.sum"], keepdims=0)
        shape_of = node("Shape", [value], [f"{name}.experts.shape"])
        return self.narrow(node("Reshape", [total, shape_of], [f"{name}.experts.out"]))

    def store_table(self, name: str, table: Float32Array, *, projects: bool) -> None:  # noqa: ARG002
        self.graph.weight(f"{name}.weight", self._rounded(name, table))

    def look_up(self, table: str, indices: str, output: str) -> str:
        return self.graph.node("Gather", [f"{table}.weight", indices], [output], axis=0)

    def project(self, table: str, value: str, output: str) -> str:
        return self.graph.node("Gemm", [value, f"{table}.weight"], [output], transB=1)

    def float32(self, value: str) -> str:
        """Return a value of the products' type in float32."""
        if self.dtype == np.float32:
            return value
        if value not in self._widened:
            self._widened.add(value)
            self.graph.node("Cast", [value], [f"{value}.float32"], to=TensorProto.FLOAT)
        return f"{value}.float32"

    def narrow(self, value: str) -> str:
        """Return a value of float32 in the products' type."""
        if self.dtype == np.float32:
            return value
        to = helper.np_dtype_to_tensor_dtype(self.dtype)
        return self.graph.node("Cast", [value], [f"{value}.narrow"], to=to)

    def _rounded(self, name: str, values: Float32Array) -> NDArray[Any]:
        with np.errstate(over="ignore"):
            rounded = values.astype(self.dtype, copy=False)
        if not np.isfinite(rounded).all():
            raise ModelError(f"{name!r} holds weights that {self.dtype} cannot hold; use another precision")
        return rounded


@dataclass(slots=True)
class Int8Matrices:
    """In blocks of 32, and so is what they multiply, when it comes.

    `centre` `[hidden]` is what is usually projected to logits: only the difference from it is rounded, and the logits
    of the centre itself are added as a bias. The same numbers are written to `native`, for the native engine.
    """

    graph: GraphBuilder
    centre: Float32Array | None = None
    native: NativeFile | None = None
    tables: dict[str, tuple[Placement, tuple[int, int]]] = field(default_factory=dict)
    _looked_up: set[str] = field(default_factory=set, init=False)

    def linear(self, name: str, matrix: Float32Array, bias: Float32Array | None, value: str) -> str:
        self._store(name, matrix, multiplies=True)
        biases = []
        if bias is not None:
            self.graph.weight(f"{name}.bias", bias)
            biases = [f"{name}.bias"]
        return self._multiply(name, matrix.shape, value, f"{name}.out", biases)

    def experts(self, name: str, mixture: Mixture, value: str, choice: tuple[str, str]) -> str:
        """Only the chosen experts compute a row. The rows of gate and up alternate in the first matrix."""
        experts, hidden = mixture.experts, mixture.router.shape[1]
        prefix, scales = f"{name}.experts", (list[Float32Array](), list[Float32Array]())

        def rounded(number: int, part: str) -> Blocks:
            blocks = Blocks(*quantize(mixture.read(number, part)))
            if self.native is not None:
                self.native.matrix(f"{prefix}.{number}.{part}", blocks)
            return blocks

        def stored(at: int, *parts: str) -> Iterator[NDArray[np.uint8]]:
            for number in range(experts.count):
                blocks = Blocks.joined(_alternating, *(rounded(number, part) for part in parts))
                scales[at].append(blocks.scales)
                yield blocks.levels

        operands = []
        for at, parts in enumerate((("gate_proj", "up_proj"), ("down_proj",))):
            placement, matrix = self.graph.store_each(stored(at, *parts)), f"{prefix}.{parts[-1]}"
            shape = [(experts.count, 2 * experts.width, hidden), (experts.count, hidden, experts.width)][at]
            self.graph.weight_at(f"{matrix}.levels", placement, np.dtype(np.uint8), shape)
            self.graph.weight(f"{matrix}.scales", np.stack(scales[at]))
            operands += [f"{matrix}.levels", f"{matrix}.scales", ""]
        return self._mixed(prefix, operands, value, choice, mixture)

    def _mixed(self, prefix: str, operands: list[str], value: str, choice: tuple[str, str], mixture: Mixture) -> str:
        """Compute each choice as a row with one expert, and add a row's choices: the kernel would add several experts
        in an order that depends on other rows."""
        constant, node, experts = self.graph.constant, self.graph.node, mixture.experts
        hidden, (numbers, shares) = mixture.router.shape[1], choice
        flat = constant("flat", np.array([-1], np.int64))
        one_hot = add_one_hot(self.graph, node("Reshape", [numbers, flat], [f"{numbers}.flat"]), experts)
        single = node("Reshape", [value, constant("single", np.array([-1, 1, hidden], np.int64))], [f"{prefix}.single"])
        repeats = constant("choices", np.array([1, experts.chosen, 1], np.int64))
        repeated = node("Tile", [single, repeats], [f"{prefix}.repeated"])
        rows = node("Reshape", [repeated, constant("rows", np.array([-1, hidden], np.int64))], [f"{prefix}.rows"])
        found = self.graph.contrib_node(
            "QMoE",
            [rows, one_hot, *operands, *[""] * 6, one_hot],
            [f"{prefix}.found"],
            k=1,
            expert_weight_bits=_BITS,
            block_size=BLOCK_SIZE,
            activation_type="swiglu",
            swiglu_fusion=1,
            activation_alpha=1.0,
            activation_beta=0.0,
        )
        by_row = constant("by_row", np.array([-1, experts.chosen, hidden], np.int64))
        apart = node("Reshape", [found, by_row], [f"{prefix}.apart"])
        column = node("Unsqueeze", [shares, constant("last_axis", np.array([-1], np.int64))], [f"{shares}.column"])
        weighted = node("Mul", [apart, column], [f"{prefix}.weighted"])
        total = node(
            "ReduceSum", [weighted, constant("rank_axis", np.array([1], np.int64))], [f"{prefix}.sum"], keepdims=0
        )
        return node("Reshape", [total, node("Shape", [value], [f"{prefix}.shape"])], [f"{prefix}.out"])

    def store_table(self, name: str, table: Float32Array, *, projects: bool) -> None:
        self.tables[name] = self._store(name, table, multiplies=projects), (table.shape[0], table.shape[1])
        if projects and self.centre is not None:
            bias = table @ self.centre
            self.graph.weight(f"{name}.away", -self.centre)
            self.graph.weight(f"{name}.bias", bias)
            if self.native is not None:
                self.native.centre(-self.centre, bias)

    def look_up(self, table: str, indices: str, output: str) -> str:
        # The same bytes as `project` reads, under the flat shape that this operator wants.
        placement, shape = self.tables[table]
        if table not in self._looked_up:
            self._looked_up.add(table)
            self.graph.weight_at(f"{table}.rows", placement, np.dtype(np.uint8), shape)
        return self.graph.contrib_node(
            "GatherBlockQuantized",
            [f"{table}.rows", indices, f"{table}.scales"],
            [output],
            gather_axis=0,
            quantize_axis=1,
            block_size=BLOCK_SIZE,
            bits=_BITS,
        )

    def project(self, table: str, value: str, output: str) -> str:
        _, shape = self.tables[table]
        if self.centre is None:
            return self._multiply(table, shape, value, output, [])
        value = self.graph.node("Add", [value, f"{table}.away"], [f"{table}.centred"])
        return self._multiply(table, shape, value, output, [f"{table}.bias"])

    def _store(self, name: str, matrix: Float32Array, *, multiplies: bool) -> Placement:
        levels, scales = quantize(matrix)
        if self.native is not None:
            self.native.matrix(name, Blocks(levels, scales))
        self.graph.weight(f"{name}.scales", scales)
        placement = self.graph.store(levels)
        if multiplies:
            self.graph.weight_at(f"{name}.levels", placement, levels.dtype, levels.shape)
        return placement

    def _multiply(self, name: str, shape: tuple[int, ...], value: str, output: str, biases: list[str]) -> str:
        optional = ["", "", *biases] if biases else []
        return self.graph.contrib_node(
            "MatMulNBits",
            [value, f"{name}.levels", f"{name}.scales", *optional],
            [output],
            N=shape[0],
            K=shape[1],
            bits=_BITS,
            block_size=BLOCK_SIZE,
            accuracy_level=_INT8_ACTIVATIONS,
        )


def _alternating(*parts: NDArray[Any]) -> NDArray[Any]:
    """Return rows of all parts, one of each in turns."""
    return np.stack(parts, axis=1).reshape(-1, *parts[0].shape[1:])


def matrices(
    graph: GraphBuilder, precision: Precision, centre: Float32Array | None = None, native: NativeFile | None = None
) -> Matrices:
    """Return the products that `precision` asks for; `centre` and `native` are for those in 8 bits."""
    return Int8Matrices(graph, centre, native) if precision == "int8" else PlainMatrices(graph)
