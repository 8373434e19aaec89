"""The decoder as an ONNX graph for ONNX Runtime's CPU kernels.

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

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from shared.model_folder import GRAPH, GRAPH_DATA, Architecture, Precision
from workers.graph.builder import GraphBuilder
from workers.graph.checkpoint import Checkpoint
from workers.graph.matrices import Matrices, matrices

Progress = Callable[[float], None]


def write_decoder(checkpoint: Checkpoint, folder: Path, precision: Precision, progress: Progress) -> None:
    """Write `model.onnx` and `model.onnx.data` into `folder`; `progress` is told the fraction done.

    int8 rounds every matrix to 8 bits in blocks of 32 (norms, attention and KV stay float32); fp32 rounds nothing.
    Raises `ModelError` where a weight cannot be rounded.
    """
    with (folder / GRAPH_DATA).open("wb") as data:
        graph = GraphBuilder(data, GRAPH_DATA)
        _Decoder(checkpoint, graph, matrices(graph, precision)).build(progress)
    graph.save(folder / GRAPH, *_interface(checkpoint.architecture))


@dataclass(frozen=True, slots=True)
class _Decoder:
    """A method adds nodes and returns the name of the value that they compute."""

    checkpoint: Checkpoint
    graph: GraphBuilder
    matrices: Matrices

    def build(self, progress: Progress) -> None:
        num_layers = self.checkpoint.architecture.num_layers
        self._rotary_tables()
        self.matrices.store_table("embed_tokens", self.checkpoint.read("embed_tokens"))
        hidden, branch = "hidden", None
        self.matrices.look_up("embed_tokens", "input_ids", hidden)
        for index in range(num_layers):
            progress(index / num_layers)
            layer = f"layers.{index}"
            hidden, normed = self._norm(f"{layer}.input_layernorm", hidden, branch)
            attended = self._attention(index, normed)
            if index == num_layers - 1:
                # Logits are wanted of each sequence's last token: from here on nothing else is computed.
                hidden, attended = self._last(hidden), self._last(attended)
            branch = self._linear(f"{layer}.self_attn.o_proj", attended)
            hidden, normed = self._norm(f"{layer}.post_attention_layernorm", hidden, branch)
            branch = self._mlp(f"{layer}.mlp", normed)
        _, normed = self._norm("norm", hidden, branch)
        self._logits(normed)
        progress(1.0)

    def _rotary_tables(self) -> None:
        a = self.checkpoint.architecture
        frequencies = a.rope_theta ** -(np.arange(0, a.head_dim, 2, dtype=np.float64) / a.head_dim)
        angles = np.outer(np.arange(a.max_positions), frequencies)
        self.graph.weight("rotary_cos", np.cos(angles).astype(np.float32))
        self.graph.weight("rotary_sin", np.sin(angles).astype(np.float32))

    def _attention(self, index: int, normed: str) -> str:
        a = self.checkpoint.architecture
        prefix = f"layers.{index}.self_attn"
        # One product instead of three: the kernel takes query, key and value side by side.
        packed = np.concatenate([self.checkpoint.read(f"{prefix}.{part}_proj") for part in "qkv"])
        self.graph.contrib_node(
            "GroupQueryAttention",
            [
                self.matrices.linear(f"{prefix}.qkv", packed, normed),
                *["", ""],
                *[f"past_key.{index}", f"past_value.{index}"],
                *["seqlens_k", "total_sequence_length"],
                *["rotary_cos", "rotary_sin"],
            ],
            [f"{prefix}.attended", f"present_key.{index}", f"present_value.{index}"],
            num_heads=a.num_heads,
            kv_num_heads=a.num_kv_heads,
            do_rotary=1,
        )
        return f"{prefix}.attended"

    def _mlp(self, prefix: str, normed: str) -> str:
        gate = self._linear(f"{prefix}.gate_proj", normed)
        up = self._linear(f"{prefix}.up_proj", normed)
        self.graph.contrib_node("QuickGelu", [gate], [f"{prefix}.silu"], alpha=1.0)
        self.graph.node("Mul", [f"{prefix}.silu", up], [f"{prefix}.gated"])
        return self._linear(f"{prefix}.down_proj", f"{prefix}.gated")

    def _norm(self, name: str, hidden: str, branch: str | None) -> tuple[str, str]:
        """Add `branch` to the residual stream `hidden`; return the stream and its normed value."""
        epsilon = self.checkpoint.architecture.norm_epsilon
        normed, total = f"{name}.out", f"{name}.residual"
        self.graph.weight(name, self.checkpoint.read(name))
        if branch is None:
            self.graph.node("SimplifiedLayerNormalization", [hidden, name], [normed], axis=-1, epsilon=epsilon)
            return hidden, normed
        operands, results = [branch, hidden, name], [normed, "", "", total]
        self.graph.contrib_node("SkipSimplifiedLayerNormalization", operands, results, epsilon=epsilon)
        return total, normed

    def _last(self, value: str) -> str:
        """`[B, T, n]` → `[B, n]`: each sequence's last token."""
        self.graph.node("GatherND", [value, "last_index"], [f"{value}.last"], batch_dims=1)
        return f"{value}.last"

    def _logits(self, normed: str) -> None:
        table = "embed_tokens"
        if not self.checkpoint.architecture.tied_embedding:
            table = "lm_head"
            self.matrices.store_table(table, self.checkpoint.read(table))
        self.matrices.project(table, normed, "logits")

    def _linear(self, name: str, value: str) -> str:
        return self.matrices.linear(name, self.checkpoint.read(name), value)


def _interface(architecture: Architecture) -> tuple[list[Any], list[Any]]:
    """The graph's inputs and outputs, as the module's docstring has them."""
    tensor = helper.make_tensor_value_info
    integer, short, real = onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.FLOAT
    cache_shape: list[str | int] = ["batch", architecture.num_kv_heads, "capacity", architecture.head_dim]

    def caches(side: str) -> list[Any]:
        names = [f"{side}_{part}.{i}" for i in range(architecture.num_layers) for part in ("key", "value")]
        return [tensor(name, real, cache_shape) for name in names]

    inputs = [
        tensor("input_ids", integer, ["batch", "tokens"]),
        tensor("last_index", integer, ["batch", 1]),
        tensor("seqlens_k", short, ["batch"]),
        tensor("total_sequence_length", short, []),
        *caches("past"),
    ]
    return inputs, [tensor("logits", real, ["batch", architecture.vocab_size]), *caches("present")]
