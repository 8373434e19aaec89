"""A Llama-family decoder's weights, wherever they came from: one set of names, one layout.

Canonical names follow the safetensors checkpoints, without their `model.` prefix and `.weight` suffix; a bias keeps its
`.bias`. Matrices are `[out, in]`, float32 when read. Rows of the query and key projections are in the half-split order
of safetensors checkpoints (rotary pairs are `(i, i + head_dim / 2)`), never interleaved as GGUF has them: keys of the
two layouts are not interchangeable.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from shared.errors import ModelError
from shared.model.folder import Architecture, impossible

Float32Array = NDArray[np.float32]
Shape = tuple[int, ...]

# In a layer with experts, which are `mlp.experts.{number}`.
ROUTER: Final = "mlp.gate"
SHARED: Final = "mlp.shared_expert"
SHARED_GATE: Final = "mlp.shared_expert_gate"


@dataclass(frozen=True, slots=True)
class Blocks:
    """A matrix `[n, k]` rounded in blocks of 32 weights along k.

    `levels` are uint8 `[n, k / 32, 32]`, the others `[n, k / 32]`.

    A weight is `(level - 128) * scale`; with `minima`, of levels 0 to 15, it is `level * scale + minimum`.
    """

    levels: NDArray[np.uint8]
    scales: NDArray[Any]
    minima: NDArray[Any] | None = None

    @classmethod
    def joined(cls, join: Callable[..., NDArray[Any]], *parts: Self) -> Self:
        """Return the blocks of one matrix out of those of `parts`, by a function of their rows."""
        minima = [part.minima for part in parts if part.minima is not None]
        return cls(
            join(*[part.levels for part in parts]),
            join(*[part.scales for part in parts]),
            join(*minima) if minima else None,
        )


@dataclass(frozen=True, slots=True)
class Weight:
    """A tensor that is read, and dequantised, only when it is used: a model need not fit in memory as float32.

    `four_bits` are the numbers themselves, where the source has the tensor in blocks of 4 bits.
    """

    shape: Shape
    read: Callable[[], Float32Array]
    four_bits: Callable[[], Blocks] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Weights by canonical name, complete and of the right shapes: construction raises `ModelError` otherwise."""

    architecture: Architecture
    weights: Mapping[str, Weight]

    def __post_init__(self) -> None:
        wrong = impossible(self.architecture)
        if wrong is not None:
            raise ModelError(f"the configuration's {wrong}; fetch the model again")
        expected = expected_shapes(self.architecture)
        missing = sorted(expected.keys() - self.weights.keys())
        if missing:
            raise ModelError(f"the checkpoint lacks {len(missing)} tensors, first {missing[0]!r}; fetch it again")
        surplus = sorted(self.weights.keys() - expected.keys())
        if surplus:
            raise ModelError(
                f"the checkpoint has {len(surplus)} tensors that its configuration has no use for, "
                f"first {surplus[0]!r}; use another model"
            )
        for name, shape in expected.items():
            found = self.weights[name].shape
            if found != shape:
                raise ModelError(f"tensor {name!r} has shape {found}, the configuration says {shape}")

    def read(self, name: str) -> Float32Array:
        """One tensor as float32, C-contiguous."""
        return np.ascontiguousarray(self.weights[name].read(), dtype=np.float32)


def expected_shapes(architecture: Architecture) -> dict[str, Shape]:
    """Every canonical name and its shape."""
    a = architecture
    query, key_value = a.num_heads * a.head_dim, a.num_kv_heads * a.head_dim
    layer: dict[str, Shape] = {
        "input_layernorm": (a.hidden_size,),
        "self_attn.q_proj": (query, a.hidden_size),
        "self_attn.k_proj": (key_value, a.hidden_size),
        "self_attn.v_proj": (key_value, a.hidden_size),
        "self_attn.o_proj": (a.hidden_size, query),
        "post_attention_layernorm": (a.hidden_size,),
    }
    biases: dict[str, Shape] = {}
    if a.qkv_bias:
        biases |= {"self_attn.q_proj.bias": (query,)}
        biases |= {f"self_attn.{part}_proj.bias": (key_value,) for part in "kv"}
    if a.output_bias:
        biases["self_attn.o_proj.bias"] = (a.hidden_size,)
    if a.mlp_bias:
        biases |= {f"mlp.{part}_proj.bias": (a.intermediate_size,) for part in ("gate", "up")}
        biases["mlp.down_proj.bias"] = (a.hidden_size,)
    if a.query_key_norm:
        biases |= {f"self_attn.{part}_norm": (size,) for part, size in zip("qk", a.norm_sizes, strict=True)}
    shapes: dict[str, Shape] = {"embed_tokens": (a.vocab_size, a.hidden_size), "norm": (a.hidden_size,)}
    if not a.tied_embedding:
        shapes["lm_head"] = (a.vocab_size, a.hidden_size)
    for index in range(a.num_layers):
        parts = layer | _mlp_shapes(a, index) | biases
        shapes |= {f"layers.{index}.{name}": shape for name, shape in parts.items()}
    return shapes


def _mlp_shapes(a: Architecture, layer: int) -> dict[str, Shape]:
    experts = a.experts_in(layer)
    if experts is None:
        return _gated("mlp", a.hidden_size, a.intermediate_size)
    shapes: dict[str, Shape] = {ROUTER: (experts.count, a.hidden_size)}
    for number in range(experts.count):
        shapes |= _gated(f"mlp.experts.{number}", a.hidden_size, experts.width)
    if experts.shared_width:
        shapes |= _gated(SHARED, a.hidden_size, experts.shared_width) | {SHARED_GATE: (1, a.hidden_size)}
    return shapes


def _gated(prefix: str, hidden: int, width: int) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {f"{prefix}.{part}_proj": (width, hidden) for part in ("gate", "up")}
    return shapes | {f"{prefix}.down_proj": (hidden, width)}
