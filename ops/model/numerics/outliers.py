"""Reduce outlier channels before activations are rounded to 8 bits.

The CPU kernels round the input of a product in blocks of 32 channels, scaled by the largest one. Language models have a
few channels that are ten to a hundred times larger than their neighbours on nearly every token; in a block with such a
channel the others lose precision. The channel is divided by a power of two, which is compensated exactly in its column
of the matrix. All other channels, and so nearly all blocks of the weights, stay unchanged. The input to the logits
cannot be divided if they use the embedding's own table; there the usual value of every channel is subtracted before
rounding.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ops.model.numerics.forward import hidden_states
from ops.model.numerics.smooth import smoothed
from shared.faq.entries import PACKAGED_PATH, read_entries
from shared.model.chat_template import ChatTemplate
from workers.graph.eight_bit.quantize import BLOCK_SIZE
from workers.graph.sources.checkpoint import ROUTER, Checkpoint, Float32Array, expected_shapes

# A channel is an outlier if it exceeds the median of its block by this factor. With 2 the weights lose more than the
# activations gain; with 8 some harmful outliers remain.
_STANDS_OUT: Final = 4.0
# Larger factors would move a column of the matrix out of float32's range over many layers.
_LARGEST_FACTOR: Final = 2.0**16
_LONGEST_TEXT: Final = 96

_ATTENTION: Final = "self_attn.qkv"
_HIDDEN: Final = ("mlp.gate_proj", ROUTER)
_INTERMEDIATE: Final = ".down_proj"


@dataclass(frozen=True, slots=True)
class Evened:
    """The result. `checkpoint` computes the same as the original.

    Attributes:
        factors: the factors by linear layer, for layers that have any; with the original they determine `checkpoint`
        centre: `[hidden]`, the usual input to the logits
        unreached: the experts that no token chose, whose inputs are therefore unknown and left as they are
    """

    checkpoint: Checkpoint
    factors: Mapping[str, Float32Array]
    centre: Float32Array
    unreached: tuple[str, ...] = ()

    def named(self, recipe: str) -> str:
        """Return the sha256, in hex, of `recipe`, the factors and the centre."""
        digest = hashlib.sha256(recipe.encode())
        for name, values in (*sorted(self.factors.items()), ("centre", self.centre)):
            digest.update(name.encode())
            digest.update(values.astype("<f4").tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Products with the checkpoint's own weights. Records the size of each input channel by layer."""

    sizes: dict[str, Float32Array] = field(default_factory=dict)

    def multiply(self, name: str, value: Float32Array, matrix: Float32Array) -> Float32Array:
        if name.endswith((_ATTENTION, *_HIDDEN, _INTERMEDIATE)):
            self.sizes[name] = channel_sizes(value)
        return value @ matrix.T


def even(
    checkpoint: Checkpoint, texts: Sequence[Sequence[int]], progress: Callable[[float], None] = lambda _fraction: None
) -> Evened:
    """Run the model on `texts`, each of at least two tokens, and divide the outlier channels."""
    seen = _Sizes()
    # Non-finite weights are rejected when they are rounded.
    with np.errstate(all="ignore"):
        centre = usual_value(hidden_states(checkpoint, texts, seen, progress))
    factors = {name: outlier_factors(sizes) for name, sizes in seen.sizes.items()}
    factors = {name: found for name, found in factors.items() if np.any(found != 1)}
    return Evened(
        smoothed(
            checkpoint,
            _by_layer(factors, _HIDDEN),
            {
                name.removesuffix(_INTERMEDIATE): found
                for name, found in factors.items()
                if name.endswith(_INTERMEDIATE)
            },
            attention=_by_layer(factors, _ATTENTION),
        ),
        factors,
        centre,
        tuple(
            name.removesuffix(_INTERMEDIATE)
            for name in expected_shapes(checkpoint.architecture)
            if ".experts." in name and name.endswith(_INTERMEDIATE) and name not in seen.sizes
        ),
    )


def channel_sizes(values: Float32Array) -> Float32Array:
    """Return the quadratic mean `[channels]` of each channel of `values` `[tokens, channels]`. Tokens are normalised,
    because the first one of a text may be a thousand times larger than all others."""
    lengths = np.sqrt(np.square(values).sum(axis=1, keepdims=True)) + np.finfo(np.float32).tiny
    sizes: Float32Array = np.sqrt(np.mean(np.square(values / lengths), axis=0))
    return sizes


def usual_value(values: Float32Array) -> Float32Array:
    """Return the mean `[channels]` of `values` `[tokens, channels]`, rounded to quarters so that it does not depend on
    a CPU's order of summation. Zeros if a value is not finite."""
    mean = values.mean(axis=0)
    if not np.isfinite(mean).all():
        return np.zeros_like(mean)
    quarters: Float32Array = np.rint(mean * 4) / np.float32(4)
    return quarters


def outlier_factors(sizes: Float32Array) -> Float32Array:
    """Return powers of two `[channels]`; 1 for a channel that is not an outlier of its block of 32."""
    if len(sizes) % BLOCK_SIZE or not np.isfinite(sizes).all():
        return np.ones_like(sizes)
    blocks = sizes.reshape(-1, BLOCK_SIZE)
    usual = np.median(blocks, axis=1, keepdims=True) * np.float32(_STANDS_OUT)
    ratios = np.divide(blocks, usual, out=np.ones_like(blocks), where=usual > np.finfo(np.float32).tiny)
    factors: Float32Array = np.exp2(np.rint(np.log2(np.clip(ratios, 1, _LARGEST_FACTOR)))).astype(np.float32)
    return factors.reshape(-1)


def calibration_texts(template: ChatTemplate, count: int) -> list[tuple[int, ...]]:
    """Return calibration texts: `count` questions of the packaged FAQ with their answers, formatted as
    conversations."""
    entries = read_entries(PACKAGED_PATH)
    picked = [entries[at] for at in np.linspace(0, len(entries) - 1, count).astype(int)]
    return [
        (*template.start, *template.message("user", one.question), *template.message("assistant", one.answer))[
            :_LONGEST_TEXT
        ]
        for one in picked
    ]


def _by_layer(factors: Mapping[str, Float32Array], ending: str | tuple[str, ...]) -> dict[int, Float32Array]:
    return {int(name.split(".")[1]): found for name, found in factors.items() if name.endswith(ending)}
