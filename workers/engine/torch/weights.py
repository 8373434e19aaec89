"""Read a decoder's weights for torch from a prepared folder of any engine.

The graph has every tensor's name and position in the data file (`workers/graph/eight_bit/builder.py`), so torch can
read folders for ONNX Runtime and TensorRT, except those in the CPU's 8 bits. An 8-bit MLP is in the format of
`workers/graph/eight_bit/qdq.py`.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import torch
from torch import Tensor

from shared.errors import ModelError
from shared.model.folder import GRAPH, GRAPH_DATA, REMEDY, Architecture, Experts, ModelFolder
from workers.graph.sources.checkpoint import ROUTER, SHARED, SHARED_GATE

# the type of products, KV and attention, except 8-bit products
DTYPES: Final[dict[str, torch.dtype]] = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "int8-mlp": torch.float16,
    "fp8-mlp": torch.float16,
}

_STORED: Final[dict[int, tuple[np.dtype[Any], torch.dtype]]] = {
    onnx.TensorProto.FLOAT: (np.dtype("<f4"), torch.float32),
    onnx.TensorProto.FLOAT16: (np.dtype("<f2"), torch.float16),
    onnx.TensorProto.BFLOAT16: (np.dtype("<i2"), torch.bfloat16),
    onnx.TensorProto.INT8: (np.dtype("<i1"), torch.int8),
    onnx.TensorProto.FLOAT8E4M3FN: (np.dtype("<i1"), torch.float8_e4m3fn),
}


@dataclass(frozen=True, slots=True)
class Linear:
    """A matrix `[out, in]` and its bias `[out]`."""

    matrix: Tensor
    bias: Tensor | None


@dataclass(frozen=True, slots=True)
class RoundedLinear:
    """An 8-bit matrix, int8 or E4M3, `[out, in]`; row i's numbers are multiples of `scales[i]`, float32 `[out]`.

    With a `step`, the input is rounded to multiples of it, in the same type.
    """

    matrix: Tensor
    bias: Tensor | None
    scales: Tensor
    step: float | None

    def unrounded(self, dtype: torch.dtype) -> Linear:
        """Return the same numbers as a matrix of `dtype`."""
        return Linear((self.matrix.float() * self.scales.unsqueeze(1)).to(dtype), self.bias)


AnyLinear = Linear | RoundedLinear


@dataclass(frozen=True, slots=True)
class Mlp:
    """An MLP's matrices; gate and up are one."""

    gate_up: AnyLinear
    down: AnyLinear


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureWeights:
    """A layer's experts: `router` float32 `[experts, hidden]`; of all `gate` and `up` `[experts, hidden, width]` and
    `down` `[experts, width, hidden]`; the expert that every token passes, and its gate, float32 `[1, hidden]`."""

    router: Tensor
    gate: Tensor
    up: Tensor
    down: Tensor
    shared: Mlp | None
    shared_gate: Tensor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """The weights of one layer; query, key and value are one matrix. Norms are float32."""

    input_norm: Tensor
    qkv: AnyLinear
    query_norm: Tensor | None
    key_norm: Tensor | None
    output: AnyLinear
    mlp_norm: Tensor
    mlp: Mlp | MixtureWeights


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderWeights:
    """A decoder's weights. `head` is the embedding if they are tied."""

    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    head: Linear


def load_weights(folder: ModelFolder, device: torch.device) -> DecoderWeights:
    """Read the weights onto `device`, one matrix at a time.

    Raises:
        ModelError: a tensor is missing or has another shape.
    """
    return _WeightsReader.open(folder, device).weights(folder.manifest.architecture)


@dataclass(frozen=True, slots=True)
class _WeightsReader:
    """The graph's tensors by name, and the input of each matrix product; `dtype` is the type of matrices, biases and
    tables."""

    data: Path
    tensors: dict[str, Any]
    multiplied: dict[str, str]
    device: torch.device
    dtype: torch.dtype

    @classmethod
    def open(cls, folder: ModelFolder, device: torch.device) -> "_WeightsReader":
        # protobuf's parser raises various exceptions
        try:
            graph = onnx.load(folder.graph_path, load_external_data=False).graph
        except Exception as error:
            raise ModelError(f"{folder.graph_path} is not a graph ({type(error).__name__}); {REMEDY}") from error
        tensors = {tensor.name: tensor for tensor in graph.initializer}
        multiplied = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "MatMul"}
        return cls(folder.path / GRAPH_DATA, tensors, multiplied, device, DTYPES[folder.manifest.precision])

    def weights(self, a: Architecture) -> DecoderWeights:
        embedding = self._table("embed_tokens", a)
        return DecoderWeights(
            embedding=embedding,
            layers=tuple(self._layer(index, a) for index in range(a.num_layers)),
            norm=self._norm("norm", a.hidden_size),
            head=Linear(embedding if a.tied_embedding else self._table("lm_head", a), None),
        )

    def _layer(self, index: int, a: Architecture) -> LayerWeights:
        prefix, experts = f"layers.{index}", a.experts_in(index)
        attention = f"{prefix}.self_attn"
        query, key_value = a.num_heads * a.head_dim, a.num_kv_heads * a.head_dim
        return LayerWeights(
            input_norm=self._norm(f"{prefix}.input_layernorm", a.hidden_size),
            qkv=self._linear(f"{attention}.qkv", a.hidden_size, query + 2 * key_value, biased=a.qkv_bias),
            query_norm=self._head_norm(f"{attention}.q", a.norm_sizes[0], a),
            key_norm=self._head_norm(f"{attention}.k", a.norm_sizes[1], a),
            output=self._linear(f"{attention}.o_proj", query, a.hidden_size, biased=a.output_bias),
            mlp_norm=self._norm(f"{prefix}.post_attention_layernorm", a.hidden_size),
            mlp=(
                self._mlp(f"{prefix}.mlp", a.hidden_size, a.intermediate_size, biased=a.mlp_bias)
                if experts is None
                else self._mixture(prefix, a.hidden_size, experts)
            ),
        )

    def _mlp(self, prefix: str, hidden: int, width: int, *, biased: bool) -> Mlp:
        gate, up = (self._linear(f"{prefix}.{part}_proj", hidden, width, biased=biased) for part in ("gate", "up"))
        return Mlp(_stacked(gate, up, self.dtype), self._linear(f"{prefix}.down_proj", width, hidden, biased=biased))

    def _mixture(self, layer: str, hidden: int, experts: Experts) -> MixtureWeights:
        count, width = experts.count, experts.width
        gate, up, down = (
            self._read(f"{layer}.mlp.experts.{part}_proj.weight", (count, *shape)).to(self.dtype)
            for part, shape in (("gate", (hidden, width)), ("up", (hidden, width)), ("down", (width, hidden)))
        )
        shared = shared_gate = None
        if experts.shared_width:
            shared = self._mlp(f"{layer}.{SHARED}", hidden, experts.shared_width, biased=False)
            shared_gate = self._read(f"{layer}.{SHARED_GATE}.weight", (1, hidden)).float()
        router = self._read(f"{layer}.{ROUTER}.weight", (count, hidden)).float()
        return MixtureWeights(router=router, gate=gate, up=up, down=down, shared=shared, shared_gate=shared_gate)

    def _table(self, name: str, a: Architecture) -> Tensor:
        return self._read(f"{name}.weight", (a.vocab_size, a.hidden_size)).to(self.dtype)

    def _linear(self, name: str, num_in: int, num_out: int, *, biased: bool) -> AnyLinear:
        # Graphs store matrices as `[in, out]`; products with few rows are fastest with `[out, in]`.
        bias = self._read(f"{name}.bias", (num_out,)).to(self.dtype) if biased else None
        if f"{name}.levels" not in self.tensors:
            matrix = self._read(f"{name}.weight", (num_in, num_out)).to(self.dtype)
            return Linear(matrix.t().contiguous(), bias)
        levels = self._read(f"{name}.levels", (num_in, num_out))
        turned = levels.view(torch.int8).t().contiguous().view(levels.dtype)
        scales = self._read(f"{name}.scales", (num_out,)).float()
        return RoundedLinear(turned, bias, scales, self._step(name))

    def _step(self, name: str) -> float | None:
        """Return the rounding step of linear `name`'s input, which another one may share; None if it is not rounded."""
        step = self.tensors.get(self.multiplied.get(f"{name}.out", "").removesuffix(".in") + ".step")
        return None if step is None else float(onnx.numpy_helper.to_array(step))

    def _head_norm(self, part: str, size: int, a: Architecture) -> Tensor | None:
        if not a.query_key_norm:
            return None
        # The dialects for CPU and TensorRT name it differently.
        name = f"{part}_norm"
        return self._norm(name if name in self.tensors else f"{part}.heads.norm", size)

    def _norm(self, name: str, size: int) -> Tensor:
        return self._read(name, (size,)).float()

    def _read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        tensor = self.tensors.get(name)
        found = None if tensor is None else tuple(tensor.dims)
        if tensor is None or found != shape or tensor.data_type not in _STORED:
            raise ModelError(f"{self.data.with_name(GRAPH)} has no tensor {name!r} of shape {shape}; {REMEDY}")
        stored, dtype = _STORED[tensor.data_type]
        offset = int({entry.key: entry.value for entry in tensor.external_data}["offset"])
        values = np.fromfile(self.data, stored, math.prod(shape), offset=offset)
        return torch.from_numpy(values).view(dtype).view(shape).to(self.device)


def _stacked(gate: AnyLinear, up: AnyLinear, dtype: torch.dtype) -> AnyLinear:
    """Return both as one matrix: in 8 bits only if both are, with rounded inputs only if both have the same step."""
    bias = None if gate.bias is None or up.bias is None else torch.cat((gate.bias, up.bias))
    if isinstance(gate, RoundedLinear) and isinstance(up, RoundedLinear):
        levels = torch.cat((gate.matrix.view(torch.int8), up.matrix.view(torch.int8))).view(gate.matrix.dtype)
        return RoundedLinear(
            levels, bias, torch.cat((gate.scales, up.scales)), gate.step if gate.step == up.step else None
        )
    plain = [part.unrounded(dtype) if isinstance(part, RoundedLinear) else part for part in (gate, up)]
    return Linear(torch.cat([part.matrix for part in plain]), bias)
