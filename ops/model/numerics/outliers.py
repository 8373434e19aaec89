"""Evens out the channels that stand out of their blocks, before activations are rounded to 8 bits.

The CPU's kernels round what enters a product in blocks of 32 channels, each by its largest. Language models have a few
channels that are ten to a hundred times larger than their neighbours on nearly every token: a block that holds one
loses the others' last bits. Such a channel is divided by a power of two, which its column of the matrix makes up for
exactly. All others, and so nearly all blocks of the weights, stay as they are. What is projected to logits by an
embedding's own table cannot be divided so; there the usual value of every channel is taken off before it is rounded.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ops.model.numerics.forward import NumpyDialect
from ops.model.numerics.smooth import smoothed
from shared.faq.entries import PACKAGED_PATH, read_entries
from shared.model.chat_template import ChatTemplate
from workers.graph.decoder import Decoder
from workers.graph.eight_bit.quantize import BLOCK_SIZE
from workers.graph.sources.checkpoint import Checkpoint, Float32Array

# A channel stands out where it is so many times larger than the median of its block. Twice costs the weights more than
# the activations gain, eight times leaves some that hurt.
_STANDS_OUT: Final = 4.0
# Factors beyond would take a matrix's column out of float32's reach in the long run of layers.
_LARGEST_FACTOR: Final = 2.0**16
_LONGEST_TEXT: Final = 96

_ATTENTION: Final = "self_attn.qkv"
_HIDDEN: Final = "mlp.gate_proj"
_INTERMEDIATE: Final = "mlp.down_proj"


@dataclass(frozen=True, slots=True)
class Evened:
    """`checkpoint` computes what the original computes; `factors` by linear, of those that have any, is all that it
    depends on beside it. `centre` `[hidden]` is what is usually projected to logits."""

    checkpoint: Checkpoint
    factors: Mapping[str, Float32Array]
    centre: Float32Array

    def named(self, recipe: str) -> str:
        """Return the sha256, in hex, of `recipe`, the factors and the centre."""
        digest = hashlib.sha256(recipe.encode())
        for name, values in (*sorted(self.factors.items()), ("centre", self.centre)):
            digest.update(name.encode())
            digest.update(values.astype("<f4").tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class _Sizes:
    """`Products` as the checkpoint has them; keeps how large each channel of an input is, by linear."""

    sizes: dict[str, Float32Array] = field(default_factory=dict)

    def multiply(self, name: str, value: Float32Array, matrix: Float32Array) -> Float32Array:
        if name.endswith((_ATTENTION, _HIDDEN, _INTERMEDIATE)):
            self.sizes[name] = channel_sizes(value)
        return value @ matrix.T


class _Reader(NumpyDialect):
    """Keeps what is projected, of every token, in place of its logits."""

    __slots__ = ("projected",)
    projected: Float32Array

    def logits(self, head: Float32Array | None, normed: str) -> None:  # noqa: ARG002
        self.projected = self._values[normed]


def even(
    checkpoint: Checkpoint, texts: Sequence[Sequence[int]], progress: Callable[[float], None] = lambda _fraction: None
) -> Evened:
    """Have the model read `texts`, each of two tokens at least, and divide what stands out of its blocks."""
    seen = _Sizes()
    # Weights that are not finite are refused where they are rounded.
    with np.errstate(all="ignore"):
        reader = _Reader(checkpoint.architecture, texts, seen)
        Decoder(checkpoint, reader).build(progress)
        centre = usual_value(reader.projected)
    factors = {name: outlier_factors(sizes) for name, sizes in seen.sizes.items()}
    factors = {name: found for name, found in factors.items() if np.any(found != 1)}
    return Evened(
        smoothed(
            checkpoint,
            _by_layer(factors, _HIDDEN),
            _by_layer(factors, _INTERMEDIATE),
            attention=_by_layer(factors, _ATTENTION),
        ),
        factors,
        centre,
    )


def channel_sizes(values: Float32Array) -> Float32Array:
    """Return the quadratic mean `[channels]` of each channel of `values` `[tokens, channels]`, every token counted by
    its share: the first of a text may be a thousand times larger than all the others."""
    lengths = np.sqrt(np.square(values).sum(axis=1, keepdims=True)) + np.finfo(np.float32).tiny
    sizes: Float32Array = np.sqrt(np.mean(np.square(values / lengths), axis=0))
    return sizes


def usual_value(values: Float32Array) -> Float32Array:
    """Return the mean `[channels]` of `values` `[tokens, channels]` in quarters: so coarse that no CPU's order of
    adding decides it. Zeros where a value is not finite."""
    mean = values.mean(axis=0)
    if not np.isfinite(mean).all():
        return np.zeros_like(mean)
    quarters: Float32Array = np.rint(mean * 4) / np.float32(4)
    return quarters


def outlier_factors(sizes: Float32Array) -> Float32Array:
    """Powers of two `[channels]`, 1 for a channel that does not stand out of its block of 32."""
    if len(sizes) % BLOCK_SIZE or not np.isfinite(sizes).all():
        return np.ones_like(sizes)
    blocks = sizes.reshape(-1, BLOCK_SIZE)
    usual = np.median(blocks, axis=1, keepdims=True) * np.float32(_STANDS_OUT)
    ratios = np.divide(blocks, usual, out=np.ones_like(blocks), where=usual > np.finfo(np.float32).tiny)
    factors: Float32Array = np.exp2(np.rint(np.log2(np.clip(ratios, 1, _LARGEST_FACTOR)))).astype(np.float32)
    return factors.reshape(-1)


def calibration_texts(template: ChatTemplate, count: int) -> list[tuple[int, ...]]:
    """Return the texts that the model reads: `count` questions of the packaged FAQ and their answers, as a conversation
    has them."""
    entries = read_entries(PACKAGED_PATH)
    picked = [entries[at] for at in np.linspace(0, len(entries) - 1, count).astype(int)]
    return [
        (*template.start, *template.message("user", one.question), *template.message("assistant", one.answer))[
            :_LONGEST_TEXT
        ]
        for one in picked
    ]


def _by_layer(factors: Mapping[str, Float32Array], ending: str) -> dict[int, Float32Array]:
    return {int(name.split(".")[1]): found for name, found in factors.items() if name.endswith(ending)}
