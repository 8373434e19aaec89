"""The decoder's nodes for TensorRT 10.15 and later, of opset 24: KV in place, fused attention.

TensorRT writes `TensorScatter` in place (`IKVCacheUpdateLayer`; it wants a fixed length) and runs `Attention` as one
fused kernel (`IAttention`):
https://docs.nvidia.com/deeplearning/tensorrt/latest/inference-library/transformers-kv-cache.html
"""

from dataclasses import dataclass

import numpy as np
import onnx

from shared.model.folder import Architecture
from workers.graph.eight_bit.builder import GraphBuilder
from workers.graph.eight_bit.matrices import PlainMatrices, store_head
from workers.graph.rotary import rotary_tables
from workers.graph.routing import Mixture, add_choice, add_scores, add_shared
from workers.graph.sources.checkpoint import Float32Array


@dataclass(frozen=True, slots=True)
class TensorrtDialect:
    """The nodes of a decoder's parts."""

    architecture: Architecture
    graph: GraphBuilder
    matrices: PlainMatrices
    max_length: int

    def begin(self) -> None:
        """Each new token's position `[B, T]`, the angles of all positions, and what a token may attend to."""
        cosines, sines = rotary_tables(self.architecture, self.max_length)
        self.graph.weight("rotary_cos", cosines)
        self.graph.weight("rotary_sin", sines)
        constant, node = self.graph.constant, self.graph.node
        zero, one = constant("zero", np.array(0, np.int64)), constant("one", np.array(1, np.int64))
        shape = node("Shape", ["input_ids"], ["input_ids.shape"])
        width = node("Gather", [shape, one], ["num_tokens"], axis=0)
        offsets = node("Range", [zero, width, one], ["offsets"])
        starts = node("Unsqueeze", ["past_lengths", constant("last_axis", np.array([-1], np.int64))], ["starts"])
        node("Add", [starts, offsets], ["positions"])
        constant("key_positions", np.arange(self.max_length, dtype=np.int64))
        self._look()

    def embed(self, table: Float32Array) -> str:
        self.matrices.store_table("embed_tokens", table, projects=self.architecture.tied_embedding)
        return self.matrices.float32(self.matrices.look_up("embed_tokens", "input_ids", "embedded"))

    def norm(self, name: str, scale: Float32Array, hidden: str, branch: str | None) -> tuple[str, str]:
        if branch is not None:
            hidden = self.graph.node("Add", [hidden, self.matrices.float32(branch)], [f"{name}.residual"])
        return hidden, self.matrices.narrow(self._rms_norm(name, scale, hidden))

    def linear(self, name: str, matrix: Float32Array, bias: Float32Array | None, value: str) -> str:
        return self.matrices.linear(name, matrix, bias, value)

    def attention(self, layer: int, packed: str, norms: tuple[Float32Array, Float32Array] | None) -> str:
        a = self.architecture
        prefix = f"layers.{layer}.self_attn"
        parts = [f"{prefix}.{part}" for part in "qkv"]
        sizes = np.array([a.num_heads, a.num_kv_heads, a.num_kv_heads], np.int64) * a.head_dim
        self.graph.node("Split", [packed, self.graph.constant("head_sizes", sizes)], parts, axis=-1)
        query_norm, key_norm = norms if norms is not None else (None, None)
        if a.joint_norm and norms is not None:
            parts = [*(self._normed(part, scale) for part, scale in zip(parts, norms, strict=False)), parts[2]]
            query_norm = key_norm = None
        query, key, value = (self._heads(part) for part in parts)
        attended = self._attended(layer, self._turned(query, query_norm), self._turned(key, key_norm), value)
        by_token = self.graph.node("Transpose", [attended], [f"{prefix}.by_token"], perm=[0, 2, 1, 3])
        flat = self.graph.constant("side_by_side", np.array([0, 0, a.num_heads * a.head_dim], np.int64))
        return self.graph.node("Reshape", [by_token, flat], [f"{prefix}.attended"])

    def gated(self, name: str, gate: str, up: str) -> str:
        sigmoid = self.graph.node("Sigmoid", [gate], [f"{name}.sigmoid"])
        silu = self.graph.node("Mul", [gate, sigmoid], [f"{name}.silu"])
        return self.graph.node("Mul", [silu, up], [f"{name}.gated"])

    def experts(self, name: str, mixture: Mixture, value: str) -> str:
        scores = add_scores(self.graph, f"{name}.gate", mixture.router, self.matrices.float32(value))
        return self.matrices.experts(
            name, mixture, value, add_choice(self.graph, f"{name}.gate", scores, mixture.experts)
        )

    def shared_expert(self, name: str, gate: Float32Array, value: str, shared: str, branch: str) -> str:
        score = add_scores(self.graph, name, gate, self.matrices.float32(value))
        wide = self.matrices.float32
        return self.matrices.narrow(add_shared(self.graph, name, score, wide(shared), wide(branch)))

    def last(self, value: str) -> str:
        return self.graph.node("GatherND", [value, "last_index"], [f"{value}.last"], batch_dims=1)

    def logits(self, head: Float32Array | None, normed: str) -> None:
        projected = self.matrices.project(store_head(self.matrices, head), normed, "projected")
        self.graph.node("Cast", [projected], ["logits"], to=onnx.TensorProto.FLOAT)
        _add_greedy(self.graph, self.architecture.vocab_size)

    def _look(self) -> None:
        """`visible` `[B, 1, T, max_length]`: a slot's tokens up to each new one."""
        around = self.graph.constant("around_tokens", np.array([1, 3], np.int64))
        by_query = self.graph.node("Unsqueeze", ["positions", around], ["positions.by_query"])
        self.graph.node("GreaterOrEqual", [by_query, "key_positions"], ["visible"])

    def _attended(self, layer: int, query: str, key: str, value: str) -> str:
        """`[B, heads, T, head_dim]`, of query and key in float32 and value in the type of the KV."""
        names = [self.matrices.narrow(query), self._appended("key", layer, self.matrices.narrow(key))]
        names += [self._appended("value", layer, value), "visible"]
        return self.graph.node("Attention", names, [f"layers.{layer}.self_attn.by_head"])

    def _appended(self, part: str, layer: int, heads: str) -> str:
        names = [f"past_{part}.{layer}", heads, "past_lengths"]
        return self.graph.node("TensorScatter", names, [f"present_{part}.{layer}"], axis=2)

    def _heads(self, value: str) -> str:
        """`[B, T, heads * head_dim]` → `[B, heads, T, head_dim]`."""
        shape = self.graph.constant("by_head", np.array([0, 0, -1, self.architecture.head_dim], np.int64))
        self.graph.node("Reshape", [value, shape], [f"{value}.split"])
        return self.graph.node("Transpose", [f"{value}.split"], [f"{value}.heads"], perm=[0, 2, 1, 3])

    def _normed(self, part: str, scale: Float32Array) -> str:
        """All heads of a token, normed together."""
        return self.matrices.narrow(self._rms_norm(f"{part}.heads.norm", scale, self.matrices.float32(part)))

    def _turned(self, heads: str, scale: Float32Array | None) -> str:
        """Heads in float32 that are normed, where they have a scale, and turned by their position's angle."""
        wide = self.matrices.float32(heads)
        return self._rotated(wide if scale is None else self._rms_norm(f"{heads}.norm", scale, wide))

    def _rotated(self, heads: str) -> str:
        tables = ["rotary_cos", "rotary_sin", "positions"]
        return self.graph.node("RotaryEmbedding", [heads, *tables], [f"{heads}.rotated"])

    def _rms_norm(self, name: str, scale: Float32Array, value: str) -> str:
        self.graph.weight(name, scale)
        epsilon = self.architecture.norm_epsilon
        return self.graph.node("RMSNormalization", [value, name], [f"{name}.out"], axis=-1, epsilon=epsilon)


def _add_greedy(graph: GraphBuilder, vocab_size: int) -> None:
    """Find, of equal logits, the smallest id: which of them `ArgMax` takes is left to TensorRT's kernel.

    Ids pass through float32, which holds every one of them exactly.
    """
    constant, node = graph.constant, graph.node
    axis = constant("vocabulary_axis", np.array([1], np.int64))
    node("ReduceMax", ["logits", axis], ["peaks"], keepdims=1)
    node("GreaterOrEqual", ["logits", "peaks"], ["is_peak"])
    graph.weight("vocabulary", np.arange(vocab_size, dtype=np.float32))
    none = constant("no_token", np.array(vocab_size, np.float32))
    node("Where", ["is_peak", "vocabulary", none], ["peak_ids"])
    node("ReduceMin", ["peak_ids", axis], ["first_peak"], keepdims=0)
    node("Cast", ["first_peak"], ["token_ids"], to=onnx.TensorProto.INT64)
