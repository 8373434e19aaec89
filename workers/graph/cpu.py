"""The decoder in the dialect of ONNX Runtime's CPU kernels.

Inputs, for B sequences of T new tokens each:

    input_ids              int64 [B, T]     right-padded where sequences differ in length
    last_index             int64 [B, 1]     which of its T tokens is a sequence's last
    seqlens_k              int32 [B]        tokens of a sequence after this step, minus one
    total_sequence_length  int32 []         tokens of the longest sequence after this step
    past_key.{layer}, past_value.{layer}    float32 [B, kv heads, capacity, head dim]

Outputs are `logits` float32 [B, vocabulary] of each sequence's last token, and `present_key.{layer}` and
`present_value.{layer}`, to be bound to the memory of the past: the kernel then appends in place. More than one new
token on top of a past is possible for B = 1 only.

Operators beyond the standard: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper

from shared.errors import ModelError
from shared.model.folder import GRAPH, GRAPH_DATA, Architecture, Precision
from workers.graph.decoder import Decoder, Progress, cache_names
from workers.graph.eight_bit.builder import GraphBuilder
from workers.graph.eight_bit.matrices import Matrices, matrices, store_head
from workers.graph.native import NativeFile
from workers.graph.rotary import rotary_tables
from workers.graph.routing import Mixture, add_choice, add_scores, add_shared
from workers.graph.sources.checkpoint import Checkpoint, Float32Array

_OPSET: Final = 21
_IR_VERSION: Final = 10
# The kernel rotates pairs sixteen values at a time.
_HEAD_DIM_MULTIPLE: Final = 16


def write_cpu_decoder(
    checkpoint: Checkpoint,
    folder: Path,
    precision: Precision,
    progress: Progress,
    *,
    centre: Float32Array | None = None,
    native: NativeFile | None = None,
) -> None:
    """Write `model.onnx` and `model.onnx.data` into `folder`; `progress` is called with the fraction done.

    int8 rounds every matrix to 8 bits in blocks of 32 (norms, biases, attention and KV stay float32); fp32 rounds
    nothing. `centre` `[hidden]` is what is usually projected to logits, for int8. `native` is given int8's numbers too.
    Raises `ModelError` if a weight cannot be rounded or the kernels cannot take the heads' size.
    """
    architecture = checkpoint.architecture
    if architecture.head_dim % _HEAD_DIM_MULTIPLE:
        raise ModelError(
            f"head_dim {architecture.head_dim} is not supported by the CPU's kernels; "
            f"use a model with a multiple of {_HEAD_DIM_MULTIPLE}"
        )
    with (folder / GRAPH_DATA).open("wb") as data:
        graph = GraphBuilder(data, GRAPH_DATA, opset=_OPSET, ir_version=_IR_VERSION)
        products = matrices(graph, precision, centre, native)
        Decoder(checkpoint, CpuDialect(architecture, graph, products)).build(progress)
    if native is not None:
        native.vectors(checkpoint)
    graph.save(folder / GRAPH, *_interface(architecture))


@dataclass(frozen=True, slots=True)
class CpuDialect:
    architecture: Architecture
    graph: GraphBuilder
    matrices: Matrices

    def begin(self) -> None:
        cosines, sines = rotary_tables(self.architecture, self.architecture.max_positions)
        self.graph.weight("rotary_cos", cosines)
        self.graph.weight("rotary_sin", sines)

    def embed(self, table: Float32Array) -> str:
        self.matrices.store_table("embed_tokens", table, projects=self.architecture.tied_embedding)
        return self.matrices.look_up("embed_tokens", "input_ids", "hidden")

    def norm(self, name: str, scale: Float32Array, hidden: str, branch: str | None) -> tuple[str, str]:
        epsilon = self.architecture.norm_epsilon
        normed, total = f"{name}.out", f"{name}.residual"
        self.graph.weight(name, scale)
        if branch is None:
            self.graph.node("SimplifiedLayerNormalization", [hidden, name], [normed], axis=-1, epsilon=epsilon)
            return hidden, normed
        operands, results = [branch, hidden, name], [normed, "", "", total]
        self.graph.contrib_node("SkipSimplifiedLayerNormalization", operands, results, epsilon=epsilon)
        return total, normed

    def linear(self, name: str, matrix: Float32Array, bias: Float32Array | None, value: str) -> str:
        return self.matrices.linear(name, matrix, bias, value)

    def attention(self, layer: int, packed: str, norms: tuple[Float32Array, Float32Array] | None) -> str:
        prefix = f"layers.{layer}.self_attn"
        # The kernel takes query, key and value side by side if they are used unchanged.
        heads = [packed, "", ""] if norms is None else self._normed_heads(prefix, packed, norms)
        self.graph.contrib_node(
            "GroupQueryAttention",
            [
                *heads,
                *[f"past_key.{layer}", f"past_value.{layer}"],
                *["seqlens_k", "total_sequence_length"],
                *["rotary_cos", "rotary_sin"],
            ],
            [f"{prefix}.attended", f"present_key.{layer}", f"present_value.{layer}"],
            num_heads=self.architecture.num_heads,
            kv_num_heads=self.architecture.num_kv_heads,
            do_rotary=1,
        )
        return f"{prefix}.attended"

    def gated(self, name: str, gate: str, up: str) -> str:
        self.graph.contrib_node("QuickGelu", [gate], [f"{name}.silu"], alpha=1.0)
        return self.graph.node("Mul", [f"{name}.silu", up], [f"{name}.gated"])

    def experts(self, name: str, mixture: Mixture, value: str) -> str:
        scores = add_scores(self.graph, f"{name}.gate", mixture.router, value)
        return self.matrices.experts(
            name, mixture, value, add_choice(self.graph, f"{name}.gate", scores, mixture.experts)
        )

    def shared_expert(self, name: str, gate: Float32Array, value: str, shared: str, branch: str) -> str:
        return add_shared(self.graph, name, add_scores(self.graph, name, gate, value), shared, branch)

    def last(self, value: str) -> str:
        return self.graph.node("GatherND", [value, "last_index"], [f"{value}.last"], batch_dims=1)

    def logits(self, head: Float32Array | None, normed: str) -> None:
        self.matrices.project(store_head(self.matrices, head), normed, "logits")

    def _normed_heads(self, prefix: str, packed: str, norms: tuple[Float32Array, Float32Array]) -> list[str]:
        """Query, key and value apart, the first two normed; the kernel's own norms are for GPUs."""
        a = self.architecture
        parts = [f"{prefix}.{part}" for part in "qkv"]
        sizes = np.array([a.num_heads, a.num_kv_heads, a.num_kv_heads], np.int64) * a.head_dim
        self.graph.node("Split", [packed, self.graph.constant("head_sizes", sizes)], parts, axis=-1)
        by_head = self.graph.constant("by_head", np.array([0, 0, -1, a.head_dim], np.int64))
        flat = self.graph.constant("side_by_side", np.array([0, 0, -1], np.int64))
        for part, scale in zip(parts[:2], norms, strict=True):
            self.graph.weight(f"{part}_norm", scale)
            self.graph.node("Reshape", [part, flat if a.joint_norm else by_head], [f"{part}.heads"])
            self.graph.node(
                "SimplifiedLayerNormalization",
                [f"{part}.heads", f"{part}_norm"],
                [f"{part}.normed_heads"],
                axis=-1,
                epsilon=a.norm_epsilon,
            )
            self.graph.node("Reshape", [f"{part}.normed_heads", flat], [f"{part}.normed"])
        return [f"{parts[0]}.normed", f"{parts[1]}.normed", parts[2]]


def _interface(architecture: Architecture) -> tuple[list[Any], list[Any]]:
    """Return the graph's inputs and outputs, as the module's docstring has them."""
    tensor = helper.make_tensor_value_info
    integer, short, real = onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.FLOAT
    cache_shape: list[str | int] = ["batch", architecture.num_kv_heads, "capacity", architecture.head_dim]

    def caches(side: str) -> list[Any]:
        return [tensor(name, real, cache_shape) for name in cache_names(side, architecture.num_layers)]

    inputs = [
        tensor("input_ids", integer, ["batch", "tokens"]),
        tensor("last_index", integer, ["batch", 1]),
        tensor("seqlens_k", short, ["batch"]),
        tensor("total_sequence_length", short, []),
        *caches("past"),
    ]
    return inputs, [tensor("logits", real, ["batch", architecture.vocab_size]), *caches("present")]
