"""The decoder in the dialect of TensorRT 10.15 and later: standard operators of opset 24 alone, strongly typed.

Inputs, for B sequences of T new tokens each, in slots of `max_length` tokens:

    input_ids     int64 [B, T]     right-padded where sequences differ in length
    last_index    int64 [B, 1]     which of its T tokens is a sequence's last
    past_lengths  int64 [B]        tokens that are in each slot before this step
    past_key.{layer}, past_value.{layer}    float16 [B, kv heads, max_length, head dim]

Outputs are, of each sequence's last token, `logits` float32 [B, vocabulary], `peaks` float32 [B, 1], the largest of
them, and `token_ids` int64 [B], the smallest id that has it (`vocabulary` where none has, for logits that are not
numbers); and `present_key.{layer}` and `present_value.{layer}`, to be bound to the memory of the past. Slots hold
finite numbers before their first use (zeros, say): what lies behind a sequence's end counts for nothing, but nothing
times NaN is NaN. Padding is written there too and is overwritten by the next tokens, so `past_lengths + T` must not
exceed `max_length`.

Products, KV and attention are float16; the residual stream, the norms, the rotations and the logits are float32, for a
residual stream may grow beyond what float16 holds. TensorRT writes `TensorScatter` in place (`IKVCacheUpdateLayer`; it
wants a fixed `max_length`) and runs `Attention` as one fused kernel (`IAttention`):
https://docs.nvidia.com/deeplearning/tensorrt/latest/inference-library/transformers-kv-cache.html
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper

from shared.errors import ModelError
from shared.model_folder import GRAPH, GRAPH_DATA, Architecture
from workers.graph.builder import GraphBuilder
from workers.graph.checkpoint import Checkpoint, Float32Array
from workers.graph.decoder import Decoder, Progress, cache_names
from workers.graph.matrices import PlainMatrices
from workers.graph.qdq import Int8Linear, QdqMatrices
from workers.graph.rotary import rotary_tables

_OPSET: Final = 24
_IR_VERSION: Final = 11
_FLOAT32: Final = np.dtype(np.float32)
_FLOAT16: Final = np.dtype(np.float16)


def write_tensorrt_decoder(
    checkpoint: Checkpoint,
    folder: Path,
    *,
    max_length: int,
    dtype: np.dtype[Any] = _FLOAT16,
    int8: Mapping[str, Int8Linear] | None = None,
    progress: Progress,
) -> None:
    """Write `model.onnx` and `model.onnx.data` into `folder`, for slots of `max_length` tokens.

    `dtype` is that of products, KV and attention; TensorRT fuses float16, and float32 is for comparing numbers. The
    linears named in `int8` (`layers.0.mlp.gate_proj`) are products of 8-bit integers instead (`workers/graph/qdq.py`).
    `progress` is told the fraction done. Raises `ModelError` where `max_length` exceeds the model's positions or a
    weight does not fit `dtype`.
    """
    architecture = checkpoint.architecture
    if not 1 <= max_length <= architecture.max_positions:
        raise ModelError(
            f"max_length must be 1 to the model's {architecture.max_positions} positions, got {max_length}"
        )
    with (folder / GRAPH_DATA).open("wb") as data:
        graph = GraphBuilder(data, GRAPH_DATA, opset=_OPSET, ir_version=_IR_VERSION)
        dialect = TensorrtDialect(architecture, graph, QdqMatrices(graph, dtype, int8 or {}), max_length)
        Decoder(checkpoint, dialect).build(progress)
    graph.save(folder / GRAPH, *_interface(architecture, max_length, dtype))


@dataclass(frozen=True, slots=True)
class TensorrtDialect:
    architecture: Architecture
    graph: GraphBuilder
    matrices: PlainMatrices
    max_length: int

    def begin(self) -> None:
        """Each new token's position, its angles and what it may attend to: `[B, 1, T, max_length]`."""
        cosines, sines = rotary_tables(self.architecture, self.max_length)
        self.graph.weight("rotary_cos", cosines)
        self.graph.weight("rotary_sin", sines)
        constant, node = self.graph.constant, self.graph.node
        zero, one = constant("zero", np.array(0, np.int64)), constant("one", np.array(1, np.int64))
        shape = node("Shape", ["input_ids"], ["input_ids.shape"])
        width = node("Gather", [shape, one], ["num_tokens"], axis=0)
        offsets = node("Range", [zero, width, one], ["offsets"])
        starts = node("Unsqueeze", ["past_lengths", constant("last_axis", np.array([-1], np.int64))], ["starts"])
        positions = node("Add", [starts, offsets], ["positions"])
        axes = constant("around_tokens", np.array([1, 3], np.int64))
        by_query = node("Unsqueeze", [positions, axes], ["positions.by_query"])
        keys = constant("key_positions", np.arange(self.max_length, dtype=np.int64))
        node("GreaterOrEqual", [by_query, keys], ["visible"])

    def embed(self, table: Float32Array) -> str:
        self.matrices.store_table("embed_tokens", table, projects=self.architecture.tied_embedding)
        return self._float32(self.matrices.look_up("embed_tokens", "input_ids", "embedded"))

    def norm(self, name: str, scale: Float32Array, hidden: str, branch: str | None) -> tuple[str, str]:
        if branch is not None:
            hidden = self.graph.node("Add", [hidden, self._float32(branch)], [f"{name}.residual"])
        return hidden, self._narrow(self._rms_norm(name, scale, hidden))

    def linear(self, name: str, matrix: Float32Array, bias: Float32Array | None, value: str) -> str:
        return self.matrices.linear(name, matrix, bias, value)

    def attention(self, layer: int, packed: str, norms: tuple[Float32Array, Float32Array] | None) -> str:
        a = self.architecture
        prefix = f"layers.{layer}.self_attn"
        parts = [f"{prefix}.{part}" for part in "qkv"]
        sizes = np.array([a.num_heads, a.num_kv_heads, a.num_kv_heads], np.int64) * a.head_dim
        self.graph.node("Split", [packed, self.graph.constant("head_sizes", sizes)], parts, axis=-1)
        query, key, value = (self._heads(part) for part in parts)
        query_norm, key_norm = norms if norms is not None else (None, None)
        query, key = self._rotated(query, query_norm), self._rotated(key, key_norm)
        attended = self.graph.node(
            "Attention",
            [query, self._appended("key", layer, key), self._appended("value", layer, value), "visible"],
            [f"{prefix}.by_head"],
        )
        by_token = self.graph.node("Transpose", [attended], [f"{prefix}.by_token"], perm=[0, 2, 1, 3])
        flat = self.graph.constant("side_by_side", np.array([0, 0, a.num_heads * a.head_dim], np.int64))
        return self.graph.node("Reshape", [by_token, flat], [f"{prefix}.attended"])

    def gated(self, name: str, gate: str, up: str) -> str:
        sigmoid = self.graph.node("Sigmoid", [gate], [f"{name}.sigmoid"])
        silu = self.graph.node("Mul", [gate, sigmoid], [f"{name}.silu"])
        return self.graph.node("Mul", [silu, up], [f"{name}.gated"])

    def last(self, value: str) -> str:
        return self.graph.node("GatherND", [value, "last_index"], [f"{value}.last"], batch_dims=1)

    def logits(self, head: Float32Array | None, normed: str) -> None:
        table = "embed_tokens"
        if head is not None:
            table = "lm_head"
            self.matrices.store_table(table, head, projects=True)
        projected = self.matrices.project(table, normed, "projected")
        self.graph.node("Cast", [projected], ["logits"], to=onnx.TensorProto.FLOAT)
        self._greedy()

    def _greedy(self) -> None:
        """Of equal logits the smallest id: which of them `ArgMax` takes is left to TensorRT's kernel.

        Ids pass through float32, which holds every one of them exactly.
        """
        constant, node, vocab_size = self.graph.constant, self.graph.node, self.architecture.vocab_size
        axis = constant("vocabulary_axis", np.array([1], np.int64))
        node("ReduceMax", ["logits", axis], ["peaks"], keepdims=1)
        node("GreaterOrEqual", ["logits", "peaks"], ["is_peak"])
        self.graph.weight("vocabulary", np.arange(vocab_size, dtype=np.float32))
        none = constant("no_token", np.array(vocab_size, np.float32))
        node("Where", ["is_peak", "vocabulary", none], ["peak_ids"])
        node("ReduceMin", ["peak_ids", axis], ["first_peak"], keepdims=0)
        node("Cast", ["first_peak"], ["token_ids"], to=onnx.TensorProto.INT64)

    def _heads(self, value: str) -> str:
        """`[B, T, heads * head_dim]` → `[B, heads, T, head_dim]`."""
        shape = self.graph.constant("by_head", np.array([0, 0, -1, self.architecture.head_dim], np.int64))
        self.graph.node("Reshape", [value, shape], [f"{value}.split"])
        return self.graph.node("Transpose", [f"{value}.split"], [f"{value}.heads"], perm=[0, 2, 1, 3])

    def _rotated(self, heads: str, scale: Float32Array | None) -> str:
        """Heads that are normed, where they have a scale, and turned by their position's angle."""
        wide = self._float32(heads)
        if scale is not None:
            wide = self._rms_norm(f"{heads}.norm", scale, wide)
        tables = ["rotary_cos", "rotary_sin", "positions"]
        return self._narrow(self.graph.node("RotaryEmbedding", [wide, *tables], [f"{heads}.rotated"]))

    def _appended(self, part: str, layer: int, heads: str) -> str:
        names = [f"past_{part}.{layer}", heads, "past_lengths"]
        return self.graph.node("TensorScatter", names, [f"present_{part}.{layer}"], axis=2)

    def _rms_norm(self, name: str, scale: Float32Array, value: str) -> str:
        self.graph.weight(name, scale)
        epsilon = self.architecture.norm_epsilon
        return self.graph.node("RMSNormalization", [value, name], [f"{name}.out"], axis=-1, epsilon=epsilon)

    def _float32(self, value: str) -> str:
        if self.matrices.dtype == _FLOAT32:
            return value
        return self.graph.node("Cast", [value], [f"{value}.float32"], to=onnx.TensorProto.FLOAT)

    def _narrow(self, value: str) -> str:
        """In the type of products, KV and attention."""
        if self.matrices.dtype == _FLOAT32:
            return value
        to = helper.np_dtype_to_tensor_dtype(self.matrices.dtype)
        return self.graph.node("Cast", [value], [f"{value}.narrow"], to=to)


def _interface(architecture: Architecture, max_length: int, dtype: np.dtype[Any]) -> tuple[list[Any], list[Any]]:
    """The graph's inputs and outputs, as the module's docstring has them."""
    tensor = helper.make_tensor_value_info
    integer, real = onnx.TensorProto.INT64, onnx.TensorProto.FLOAT
    cache_type = helper.np_dtype_to_tensor_dtype(dtype)
    cache_shape: list[str | int] = ["batch", architecture.num_kv_heads, max_length, architecture.head_dim]

    def caches(side: str) -> list[Any]:
        return [tensor(name, cache_type, cache_shape) for name in cache_names(side, architecture.num_layers)]

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
