"""Collects what enters the products while the float32 model reads the calibration texts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ops.model.numerics.fit import Samples
from ops.model.numerics.forward import observe
from workers.graph.sources.checkpoint import Checkpoint, Float32Array

# Tokens kept of each input, and tokens whose outer products are summed, evenly spread over the texts; peaks are of all.
_SAMPLED_TOKENS: Final = 512
_GRAM_TOKENS: Final = 4_096
_DOWN: Final = ".mlp.down_proj"
_MLP: Final = (".mlp.gate_proj", _DOWN)
_ATTENTION: Final = (".self_attn.qkv", ".self_attn.o_proj")


@dataclass(frozen=True, slots=True)
class Observer:
    """`Products` as the checkpoint has them; keeps what enters the linears whose names end so."""

    endings: tuple[str, ...]
    samples: dict[str, Samples] = field(default_factory=dict)

    def multiply(self, name: str, value: Float32Array, matrix: Float32Array) -> Float32Array:
        product = value @ matrix.T
        if name.endswith(self.endings):
            sampled, summed = _spread(len(value), _SAMPLED_TOKENS), _spread(len(value), _GRAM_TOKENS)
            # A few tokens' gated products are a thousand times the others', which count as much: each by its own size.
            even = value[summed] / _sizes(product[summed]) if name.endswith(_DOWN) else value[summed]
            gram = (even.T @ even / len(even)).astype(np.float32)
            self.samples[name] = Samples(value[sampled], np.abs(value).max(axis=0), gram)
        return product


def collect(
    checkpoint: Checkpoint,
    texts: Sequence[Sequence[int]],
    progress: Callable[[float], None],
    *,
    attention: bool = False,
) -> dict[str, Samples]:
    """Samples by linear: `layers.0.mlp.gate_proj` for gate and up, `layers.0.mlp.down_proj`; with `attention` also
    `layers.0.self_attn.qkv` and `layers.0.self_attn.o_proj`."""
    observer = Observer((*_MLP, *_ATTENTION) if attention else _MLP)
    observe(checkpoint, texts, observer, progress)
    return observer.samples


def _spread(length: int, count: int) -> NDArray[np.int64]:
    return np.linspace(0, length - 1, min(count, length)).astype(np.int64)


def _sizes(rows: Float32Array) -> Float32Array:
    """Each row's length, by their quadratic mean's reciprocal: weights of mean 1."""
    sizes = np.sqrt(np.square(rows).sum(axis=1, keepdims=True)) + np.finfo(np.float32).tiny
    even: Float32Array = sizes * np.sqrt(np.mean(1 / np.square(sizes)))
    return even
