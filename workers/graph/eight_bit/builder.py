"""Collects an ONNX graph's nodes and weights.

Weights are stored next to the graph: `model.onnx` refers to `model.onnx.data`, which ONNX Runtime maps into memory.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

# ONNX Runtime maps a tensor in place where it starts at a page.
_ALIGNMENT: Final = 4096
_CONTRIB: Final = "com.microsoft"


@dataclass(frozen=True, slots=True)
class Placement:
    """The place of a tensor's bytes in the data file."""

    offset: int
    length: int


@dataclass(slots=True)
class GraphBuilder:
    """Nodes in the order they run; weights appended to the open file `data`, which the graph names `data_name`."""

    data: IO[bytes]
    data_name: str
    opset: int
    ir_version: int
    nodes: list[Any] = field(default_factory=list)
    initializers: list[Any] = field(default_factory=list)
    _constants: set[str] = field(default_factory=set, init=False)

    def weight(self, name: str, values: NDArray[Any]) -> Placement:
        """Append `values` to the data file as initializer `name`."""
        placement = self.store(values)
        self.weight_at(name, placement, values.dtype, values.shape)
        return placement

    def store(self, values: NDArray[Any]) -> Placement:
        """Append `values` to the data file, for `weight_at` to name."""
        return self.store_each([values])

    def store_each(self, parts: Iterable[NDArray[Any]]) -> Placement:
        """Append arrays as one tensor, to be named by `weight_at`."""
        self.data.write(bytes(-self.data.tell() % _ALIGNMENT))
        start = self.data.tell()
        for values in parts:
            # As bytes: numpy hands out no buffer of types that are not its own, such as bfloat16.
            self.data.write(np.ascontiguousarray(values).view(np.uint8).data)
        return Placement(start, self.data.tell() - start)

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

    def constant(self, name: str, values: NDArray[Any]) -> str:
        """Return a small tensor inside the graph itself, stored at its first use."""
        if name not in self._constants:
            self._constants.add(name)
            self.initializers.append(numpy_helper.from_array(values, name))
        return name

    def node(self, operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> str:
        """Append a node of the standard operators; returns the name of its first output."""
        self.nodes.append(helper.make_node(operator, inputs, outputs, name=outputs[0], **attributes))
        return outputs[0]

    def contrib_node(self, operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> str:
        """Append a node of ONNX Runtime's own operators; an empty name leaves an optional value out."""
        return self.node(operator, inputs, outputs, domain=_CONTRIB, **attributes)

    def save(self, path: Path, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Write the graph; `inputs` and `outputs` are `ValueInfoProto`s."""
        graph = helper.make_graph(self.nodes, "decoder", inputs, outputs, self.initializers)
        opsets = [helper.make_opsetid("", self.opset)]
        if any(node.domain == _CONTRIB for node in self.nodes):
            opsets.append(helper.make_opsetid(_CONTRIB, 1))
        model = helper.make_model(graph, opset_imports=opsets, ir_version=self.ir_version, producer_name="replyline")
        path.write_bytes(model.SerializeToString())
