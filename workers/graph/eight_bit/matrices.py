"""Write the matrix products of a decoder into an ONNX graph, in each precision. Matrices have the shape `[out, in]`, as
in checkpoints.

The embedding and the output head have one row per token; both are called tables here. In some models they are the same
matrix ("tied"): its bytes are then stored once.
"""

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
from workers.graph.sources.checkpoint import Blocks, Float32Array

_BITS: Final = 8
# accuracy_level 4 rounds activations to 8 bits as well, block by block, so that a row's result does not depend on its
# neighbours. With 0 (float32 activations) small batches take 5 to 30 times as long.
_INT8_ACTIVATIONS: Final = 4


class Matrices(Protocol):
    def linear(self, name: str, matrix: Float32Array, bias: Float32Array | None, value: str) -> str:
        """Multiply `value` `[…, in]` by `matrix` and add `bias`; returns the result's name."""

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

    def linear(self, name: str, matrix: Float32Array, bias: Float32Array | None, value: str) -> str:
        self.graph.weight(f"{name}.weight", self._rounded(name, matrix.T))
        return self.biased(name, self.graph.node("MatMul", [value, f"{name}.weight"], [f"{name}.out"]), bias)

    def biased(self, name: str, product: str, bias: Float32Array | None) -> str:
        """`product` plus the bias of linear `name`, where it has one."""
        if bias is None:
            return product
        self.graph.weight(f"{name}.bias", self._rounded(name, bias))
        return self.graph.node("Add", [product, f"{name}.bias"], [f"{name}.biased"])

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
        return self.graph.node("Cast", [value], [f"{value}.float32"], to=TensorProto.FLOAT)

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


def matrices(
    graph: GraphBuilder, precision: Precision, centre: Float32Array | None = None, native: NativeFile | None = None
) -> Matrices:
    """Return the products that `precision` asks for; `centre` and `native` are for those in 8 bits."""
    return Int8Matrices(graph, centre, native) if precision == "int8" else PlainMatrices(graph)
