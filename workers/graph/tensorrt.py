"""Writes the decoder for TensorRT, strongly typed, in a dialect of standard operators alone.

The nodes are those of `workers/graph/tensorrt_dialect.py`. Inputs, for B sequences of T new tokens each, in slots of
`max_length` tokens:

    input_ids     int64 [B, T]     right-padded where sequences differ in length
    last_index    int64 [B, 1]     which of its T tokens is a sequence's last
    past_lengths  int64 [B]        tokens that are in each slot before this step
    past_key.{layer}, past_value.{layer}    float16 [B, kv heads, max_length, head dim]

Outputs are, of each sequence's last token, `logits` float32 [B, vocabulary], `peaks` float32 [B, 1], the largest of
them, and `token_ids` int64 [B], the smallest id with that logit, or `vocabulary` if the logits are not numbers. The
outputs `present_key.{layer}` and `present_value.{layer}` are bound to the memory of the past: padding is written there
too and is overwritten by the next tokens. `past_lengths + T` must not exceed `max_length`. Slots must have finite
numbers before their first use, such as zeros: values after a sequence's end are multiplied by 0, and 0 times NaN is
NaN.

Products, KV and attention are float16; the residual stream, the norms, the rotations and the logits are float32, for a
residual stream may grow beyond what float16 holds.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper

from shared.errors import ModelError
from shared.model.folder import GRAPH, GRAPH_DATA, Architecture
from workers.graph.decoder import Decoder, Progress, cache_names
from workers.graph.eight_bit.builder import GraphBuilder
from workers.graph.eight_bit.qdq import QdqMatrices, RoundedLinear
from workers.graph.sources.checkpoint import Checkpoint
from workers.graph.tensorrt_dialect import TensorrtDialect

_OPSET: Final = 24
_IR_VERSION: Final = 11  # of the file's format
_FLOAT16: Final = np.dtype(np.float16)


def write_tensorrt_decoder(
    checkpoint: Checkpoint,
    folder: Path,
    *,
    max_length: int,
    dtype: np.dtype[Any] = _FLOAT16,
    rounded: Mapping[str, RoundedLinear] | None = None,
    progress: Progress,
) -> None:
    """Write `model.onnx` and `model.onnx.data` into `folder`, for slots of `max_length` tokens.

    Args:
        checkpoint: the model's weights.
        folder: where the files are written.
        max_length: the most tokens of a slot.
        dtype: the type of products, KV and attention. TensorRT fuses float16; float32 is for comparing numbers.
        rounded: linears that are products of 8 bits (`workers/graph/eight_bit/qdq.py`), by name
            (`layers.0.mlp.gate_proj`).
        progress: called with the fraction done.

    Raises:
        ModelError: `max_length` exceeds the model's positions, or a weight does not fit `dtype`.
    """
    architecture = checkpoint.architecture
    if not 1 <= max_length <= architecture.max_positions:
        raise ModelError(
            f"max_length must be 1 to the model's {architecture.max_positions} positions, got {max_length}"
        )
    with (folder / GRAPH_DATA).open("wb") as data:
        graph = GraphBuilder(data, GRAPH_DATA, opset=_OPSET, ir_version=_IR_VERSION)
        dialect = TensorrtDialect(architecture, graph, QdqMatrices(graph, dtype, rounded or {}), max_length)
        Decoder(checkpoint, dialect).build(progress)
    graph.save(folder / GRAPH, *_interface(architecture, max_length, dtype))


def _interface(architecture: Architecture, max_length: int, dtype: np.dtype[Any]) -> tuple[list[Any], list[Any]]:
    """Return the inputs and outputs, as the module's docstring has them."""
    tensor = helper.make_tensor_value_info
    integer, real = onnx.TensorProto.INT64, onnx.TensorProto.FLOAT
    cache_type = helper.np_dtype_to_tensor_dtype(dtype)

    def caches(side: str) -> list[Any]:
        shape: list[str | int] = ["batch", architecture.num_kv_heads, max_length, architecture.head_dim]
        return [tensor(name, cache_type, shape) for name in cache_names(side, architecture.num_layers)]

    inputs = [
        tensor("input_ids", integer, ["batch", "tokens"]),
        tensor("last_index", integer, ["batch", 1]),
        tensor("past_lengths", integer, ["batch"]),
        *caches("past"),
    ]
    outputs = [
        tensor("logits", real, ["batch", architecture.vocab_size]),
        tensor("peaks", real, ["batch", 1]),
        tensor("token_ids", integer, ["batch"]),
    ]
    return inputs, [*outputs, *caches("present")]
