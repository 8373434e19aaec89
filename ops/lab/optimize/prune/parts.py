"""Remove layers, KV groups and MLP channels from a decoder: the smaller decoder computes what the whole one computes
with the same parts set to zero. Pure.

A KV group is one key and value head with the query heads that share it. Every layer keeps equally many groups and
channels, since a layer's matrices have one shape in all engines, but each keeps its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from shared.model.folder import Architecture
from workers.graph.sources.checkpoint import Checkpoint, Weight

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Kept:
    """The parts that are kept, in ascending order. `groups` and `channels` are by layer of the whole decoder."""

    layers: tuple[int, ...]
    groups: tuple[Indices, ...]
    channels: tuple[Indices, ...]

    @classmethod
    def all_of(cls, architecture: Architecture) -> Self:
        """Return all parts of a decoder."""
        layers = range(architecture.num_layers)
        groups, channels = np.arange(architecture.num_kv_heads), np.arange(architecture.intermediate_size)
        return cls(tuple(layers), tuple(groups for _ in layers), tuple(channels for _ in layers))


def smaller(checkpoint: Checkpoint, kept: Kept) -> Checkpoint:
    """Return the decoder of the kept parts, read lazily. Its layers are numbered from 0."""
    whole = checkpoint.architecture
    groups, channels = len(kept.groups[kept.layers[0]]), len(kept.channels[kept.layers[0]])
    architecture = replace(
        whole,
        num_layers=len(kept.layers),
        num_heads=groups * (whole.num_heads // whole.num_kv_heads),
        num_kv_heads=groups,
        intermediate_size=channels,
    )
    weights = {name: weight for name, weight in checkpoint.weights.items() if not name.startswith("layers.")}
    for number, layer in enumerate(kept.layers):
        for part, weight in _of_layer(checkpoint, layer):
            axis, indices = _selection(part, kept, layer, whole)
            weights[f"layers.{number}.{part}"] = weight if indices is None else _taken(weight, axis, indices)
    return Checkpoint(architecture=architecture, weights=weights)


def _of_layer(checkpoint: Checkpoint, layer: int) -> Iterator[tuple[str, Weight]]:
    prefix = f"layers.{layer}."
    for name, weight in checkpoint.weights.items():
        if name.startswith(prefix):
            yield name.removeprefix(prefix), weight


def _selection(part: str, kept: Kept, layer: int, whole: Architecture) -> tuple[int, Indices | None]:
    """Return along which axis a tensor of a layer is cut, and what is kept of it; None if nothing is cut."""
    groups, channels, width = kept.groups[layer], kept.channels[layer], whole.head_dim
    shared = width * (whole.num_heads // whole.num_kv_heads)
    match part.removesuffix(".bias"):
        case "self_attn.q_proj":
            return 0, _spans(groups, shared)
        case "self_attn.k_proj" | "self_attn.v_proj":
            return 0, _spans(groups, width)
        case "mlp.gate_proj" | "mlp.up_proj":
            return 0, channels
        case "self_attn.o_proj" if not part.endswith(".bias"):
            return 1, _spans(groups, shared)
        case "mlp.down_proj" if not part.endswith(".bias"):
            return 1, channels
        case _:
            return 0, None


def _spans(blocks: Indices, size: int) -> Indices:
    """Return the indices of all elements of these blocks of `size` elements."""
    spans: Indices = (blocks[:, np.newaxis] * size + np.arange(size)).reshape(-1)
    return spans


def _taken(weight: Weight, axis: int, indices: Indices) -> Weight:
    shape = (*weight.shape[:axis], len(indices), *weight.shape[axis + 1 :])
    return Weight(shape, lambda: np.take(weight.read(), indices, axis))
