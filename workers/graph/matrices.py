"""Matrix products of a decoder in each precision. Matrices come as `[out, in]`, the way checkpoints store them.

A *table* is the embedding or the output head. Tied, they are one table: its bytes are stored once and serve both.
"""

from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from shared.model_folder import Precision
from workers.graph.builder import GraphBuilder, Placement
from workers.graph.quantize import BLOCK_SIZE, quantize

_BITS: Final = 8
# accuracy_level 4 rounds activations to 8 bits as well, block by block, so that a row's result does not depend on its
# neighbours. With 0 (float32 activations) small batches take 5 to 30 times as long.
_INT8_ACTIVATIONS: Final = 4


class Matrices(Protocol):
    def linear(self, name: str, matrix: NDArray[np.float32], value: str) -> str:
        """Multiply `value` `[…, in]` by `matrix`; returns the product's name."""

    def store_table(self, name: str, table: NDArray[np.float32]) -> None:
        """Store a table `[vocabulary, hidden]` for `look_up` and `project`."""

    def look_up(self, table: str, indices: str, output: str) -> None:
        """Rows of a stored table."""

    def project(self, table: str, value: str, output: str) -> None:
        """Multiply `value` `[batch, hidden]` by a stored table: `[batch, vocabulary]`."""


@dataclass(slots=True)
class Float32Matrices:
    graph: GraphBuilder

    def linear(self, name: str, matrix: NDArray[np.float32], value: str) -> str:
        self.graph.weight(f"{name}.weight", matrix.T)
        self.graph.node("MatMul", [value, f"{name}.weight"], [f"{name}.out"])
        return f"{name}.out"

    def store_table(self, name: str, table: NDArray[np.float32]) -> None:
        self.graph.weight(f"{name}.weight", table)

    def look_up(self, table: str, indices: str, output: str) -> None:
        self.graph.node("Gather", [f"{table}.weight", indices], [output], axis=0)

    def project(self, table: str, value: str, output: str) -> None:
        self.graph.node("Gemm", [value, f"{table}.weight"], [output], transB=1)


@dataclass(slots=True)
class Int8Matrices:
    graph: GraphBuilder
    tables: dict[str, tuple[Placement, tuple[int, int]]] = field(default_factory=dict)

    def linear(self, name: str, matrix: NDArray[np.float32], value: str) -> str:
        self._store(name, matrix)
        self._multiply(name, matrix.shape[0], matrix.shape[1], value, f"{name}.out")
        return f"{name}.out"

    def store_table(self, name: str, table: NDArray[np.float32]) -> None:
        self.tables[name] = self._store(name, table), (table.shape[0], table.shape[1])

    def look_up(self, table: str, indices: str, output: str) -> None:
        # The same bytes as `project` reads, under the flat shape that this operator wants.
        placement, shape = self.tables[table]
        self.graph.weight_at(f"{table}.rows", placement, np.dtype(np.uint8), shape)
        self.graph.contrib_node(
            "GatherBlockQuantized",
            [f"{table}.rows", indices, f"{table}.scales"],
            [output],
            gather_axis=0,
            quantize_axis=1,
            block_size=BLOCK_SIZE,
            bits=_BITS,
        )

    def project(self, table: str, value: str, output: str) -> None:
        _, (rows, columns) = self.tables[table]
        self._multiply(table, rows, columns, value, output)

    def _store(self, name: str, matrix: NDArray[np.float32]) -> Placement:
        levels, scales = quantize(matrix)
        self.graph.weight(f"{name}.scales", scales)
        return self.graph.weight(f"{name}.levels", levels)

    def _multiply(self, name: str, rows: int, columns: int, value: str, output: str) -> None:
        self.graph.contrib_node(
            "MatMulNBits",
            [value, f"{name}.levels", f"{name}.scales"],
            [output],
            N=rows,
            K=columns,
            bits=_BITS,
            block_size=BLOCK_SIZE,
            accuracy_level=_INT8_ACTIVATIONS,
        )


def matrices(graph: GraphBuilder, precision: Precision) -> Matrices:
    """The products that `precision` asks for."""
    return Int8Matrices(graph) if precision == "int8" else Float32Matrices(graph)
