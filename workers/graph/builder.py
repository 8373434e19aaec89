"""Collects an ONNX graph's nodes and weights.

Weights lie beside the graph: `model.onnx` refers into `model.onnx.data`, which ONNX Runtime maps into memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

# ONNX Runtime maps a tensor in place where it starts at a page.
_ALIGNMENT: Final = 4096
_CONTRIB: Final = "com.microsoft"
_OPSET: Final = 21
_IR_VERSION: Final = 10


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a tensor's bytes lie in the data file."""

    offset: int
    length: int


@dataclass(slots=True)
class GraphBuilder:
    """Nodes in the order they run; weights appended to the open file `data`, which the graph names `data_name`."""

    data: IO[bytes]
    data_name: str
    nodes: list[Any] = field(default_factory=list)
    initializers: list[Any] = field(default_factory=list)

    def weight(self, name: str, values: NDArray[Any]) -> Placement:
        """Append `values` to the data file as initializer `name`."""
        self.data.write(bytes(-self.data.tell() % _ALIGNMENT))
        placement = Placement(self.data.tell(), values.nbytes)
        self.data.write(np.ascontiguousarray(values).data)
        self.weight_at(name, placement, values.dtype, values.shape)
        return placement

    def weight_at(self, name: str, placement: Placement, dtype: np.dtype[Any], shape: Sequence[int]) -> None:
        """Make initializer `name` of bytes that are already in the file, perhaps in another shape."""
        proto = onnx.TensorProto(
            name=name,
            data_type=helper.np_dtype_to_tensor_dtype(dtype),
            dims=shape,
            data_location=onnx.TensorProto.EXTERNAL,
        )
        facts = {"location": self.data_name, "offset": placement.offset, "length": placement.length}
        for key, value in facts.items():
            proto.external_data.add(key=key, value=str(value))
        self.initializers.append(proto)

    def node(self, operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> None:
        """Append a node of the standard operators."""
        self.nodes.append(helper.make_node(operator, inputs, outputs, name=outputs[0], **attributes))

    def contrib_node(self, operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> None:
        """Append a node of ONNX Runtime's own operators; an empty name leaves an optional value out."""
        self.node(operator, inputs, outputs, domain=_CONTRIB, **attributes)

    def save(self, path: Path, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Write the graph; `inputs` and `outputs` are `ValueInfoProto`s."""
        graph = helper.make_graph(self.nodes, "decoder", inputs, outputs, self.initializers)
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_CONTRIB, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="replyline")
        path.write_bytes(model.SerializeToString())
