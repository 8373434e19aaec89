"""The same decoder with its numbers spread evenly, so that 8 bits a row hold them: pure.

A few channels of a decoder's residual stream are a hundred times as large as the rest, and a row of 8-bit numbers that
has to hold them has few levels left for all others. Turned by an orthogonal matrix, every channel is as large as any
other; RMS norms do not see the difference once their scales are part of the matrices behind them (QuaRot,
https://arxiv.org/abs/2404.00456). The values of attention are turned head by head in the same way. Every matrix is that
of before times one that is orthogonal, so that the decoder computes the same logits, and costs the same.
"""

from collections.abc import Callable

import msgspec
import numpy as np
from numpy.typing import NDArray

from workers.graph.sources.checkpoint import Checkpoint, Float32Array, Weight

_SEED = 0
# In float64: sums in another order, by another machine, then round to the same float32.
_Matrix = NDArray[np.float64]


def turned(checkpoint: Checkpoint) -> Checkpoint:
    """A checkpoint of the same function. Its head is its own: the embedding is turned, the head is scaled as well."""
    a = checkpoint.architecture
    stream, head = turning(a.hidden_size), turning(a.head_dim)
    read = checkpoint.read

    def scaled(name: str, norm: str) -> Callable[[], Float32Array]:
        """A matrix behind a norm: it scales its inputs itself, and takes the turned stream."""
        return lambda: _float32((read(name) * read(norm)).astype(np.float64) @ stream)

    def value(name: str, norm: str) -> Callable[[], Float32Array]:
        return lambda: _turn_heads(scaled(name, norm)().T, head).T

    def into_stream(name: str, source: Callable[[str], Float32Array] = read) -> Callable[[], Float32Array]:
        return lambda: _float32((source(name).T.astype(np.float64) @ stream).T)

    made: dict[str, Callable[[], Float32Array]] = {
        "embed_tokens": lambda: _float32(read("embed_tokens").astype(np.float64) @ stream),
        "norm": lambda: np.ones(a.hidden_size, np.float32),
        "lm_head": scaled("embed_tokens" if a.tied_embedding else "lm_head", "norm"),
    }
    for index in range(a.num_layers):
        layer = f"layers.{index}"
        attention, mlp = f"{layer}.self_attn", f"{layer}.mlp"
        before, between = f"{layer}.input_layernorm", f"{layer}.post_attention_layernorm"
        made |= {norm: lambda: np.ones(a.hidden_size, np.float32) for norm in (before, between)}
        made |= {f"{attention}.{part}_proj": scaled(f"{attention}.{part}_proj", before) for part in "qk"}
        made[f"{attention}.v_proj"] = value(f"{attention}.v_proj", before)
        made[f"{attention}.o_proj"] = into_stream(
            f"{attention}.o_proj", lambda name: _float32(_turn_heads(read(name), head))
        )
        made |= {f"{mlp}.{part}_proj": scaled(f"{mlp}.{part}_proj", between) for part in ("gate", "up")}
        made[f"{mlp}.down_proj"] = into_stream(f"{mlp}.down_proj")
        if a.qkv_bias:
            made[f"{attention}.v_proj.bias"] = _of_heads(read, f"{attention}.v_proj.bias", head)
        if a.output_bias:
            made[f"{attention}.o_proj.bias"] = into_stream(f"{attention}.o_proj.bias")
        if a.mlp_bias:
            made[f"{mlp}.down_proj.bias"] = into_stream(f"{mlp}.down_proj.bias")
    weights = dict(checkpoint.weights)
    weights |= {name: Weight(_shape(checkpoint, name), make) for name, make in made.items()}
    return Checkpoint(architecture=msgspec.structs.replace(a, tied_embedding=False), weights=weights)


def turning(size: int) -> _Matrix:
    """An orthogonal matrix `[size, size]` that spreads any few channels over all: signs, then a cosine transform."""
    signs = np.where(np.random.Generator(np.random.PCG64(_SEED)).random(size) < 0.5, -1.0, 1.0)  # noqa: PLR2004 - half
    places = np.arange(size)
    cosines = np.cos(np.pi / size * (places[:, np.newaxis] + 0.5) * places) * np.sqrt(2 / size)
    cosines[:, 0] = np.sqrt(1 / size)
    matrix: _Matrix = signs[:, np.newaxis] * cosines
    return matrix


def _turn_heads(values: Float32Array, head: _Matrix) -> Float32Array:
    """`[n, heads * head_dim]`, each head turned."""
    split = values.reshape(len(values), -1, len(head)).astype(np.float64)
    return _float32((split @ head).reshape(values.shape))


def _of_heads(read: Callable[[str], Float32Array], name: str, head: _Matrix) -> Callable[[], Float32Array]:
    return lambda: _turn_heads(read(name)[np.newaxis], head)[0]


def _shape(checkpoint: Checkpoint, name: str) -> tuple[int, ...]:
    return checkpoint.weights["embed_tokens" if name == "lm_head" else name].shape


def _float32(values: NDArray[np.floating]) -> Float32Array:
    return np.ascontiguousarray(values, np.float32)
