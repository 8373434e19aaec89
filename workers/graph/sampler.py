"""The ONNX graph that reduces each row of logits on the GPU to the values from which the host can draw a token. It has
no weights.

    logits       float32 [B, vocabulary]      output of the decoder's graph
    temperature  float32 [B, 1]               above 0

    candidate_logits, candidate_ids  float32, int64 [B, candidates]    the largest logits and their tokens
    block_mass                       float32 [B, blocks]    sums of exp((logit - the row's largest) / temperature),
                                                            each over the ids of one block

It is a separate graph, so that a step in which all rows are greedy does not have to run it.
"""

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

# What TensorRT 10.1 reads, and all after it.
_OPSET = 18
_IR_VERSION = 9


def sampler_graph(vocab_size: int, num_candidates: int, block_tokens: int) -> bytes:
    """Return the sampler's graph as a serialised model."""
    num_blocks = -(-vocab_size // block_tokens)
    tensor, real, integer = helper.make_tensor_value_info, onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    candidates: list[str | int] = ["batch", num_candidates]
    node: Any = helper.make_node
    nodes = [
        node("TopK", ["logits", "num_candidates"], ["candidate_logits", "candidate_ids"], axis=1),
        node("ReduceMax", ["logits", "vocabulary_axis"], ["peaks"], keepdims=1),
        node("Sub", ["logits", "peaks"], ["below_peak"]),
        node("Div", ["below_peak", "temperature"], ["scaled"]),
        node("Exp", ["scaled"], ["weights"]),
        node("Pad", ["weights", "to_whole_blocks", "nothing"], ["padded"]),
        node("Reshape", ["padded", "by_block"], ["blocks"]),
        node("ReduceSum", ["blocks", "within_block"], ["block_mass"], keepdims=0),
    ]
    integers = {
        "num_candidates": [num_candidates],
        "vocabulary_axis": [1],
        "to_whole_blocks": [0, 0, 0, num_blocks * block_tokens - vocab_size],
        "by_block": [0, num_blocks, block_tokens],
        "within_block": [2],
    }
    constants = [numpy_helper.from_array(np.array(values, np.int64), name) for name, values in integers.items()]
    constants.append(numpy_helper.from_array(np.array(0, np.float32), "nothing"))
    inputs = [tensor("logits", real, ["batch", vocab_size]), tensor("temperature", real, ["batch", 1])]
    outputs = [
        tensor("candidate_logits", real, candidates),
        tensor("candidate_ids", integer, candidates),
        tensor("block_mass", real, ["batch", num_blocks]),
    ]
    graph = helper.make_graph(nodes, "sampler", inputs, outputs, constants)
    opset = helper.make_opsetid("", _OPSET)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=_IR_VERSION, producer_name="replyline")
    serialised: bytes = model.SerializeToString()
    return serialised
