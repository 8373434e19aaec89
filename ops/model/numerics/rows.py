"""Rounds the turned decoder's matrices to 8 bits a row, by what enters them while it reads a few texts.

By the mean outer product of a matrix's input later columns make up for what earlier ones lost
(`ops/model/numerics/rounding.py`). Of the head's input the mean is found as well, to be taken off before it is rounded
(`workers/graph/eight_bit/row_int8.py`). Of the matrices that add to the residual stream those that add most noise for
their size are then held in 16 bits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np

from ops.model.numerics.forward import NumpyDialect
from ops.model.numerics.rounding import levels_by, passed_on_by
from workers.graph.decoder import Decoder
from workers.graph.eight_bit.grids import INT8
from workers.graph.eight_bit.row_int8 import (
    RoundedRows,
    is_rounded_twice,
    is_spread,
    quantize_rows,
    quantize_rows_twice,
    row_steps,
    spread,
)
from workers.graph.eight_bit.turned import turned
from workers.graph.sources.checkpoint import Checkpoint, Float32Array

_HEAD: Final = "lm_head"
# What enters these is as large as attention or a gate made it, and the stream they add to is normed afterwards: each
# token counts by what it adds, not by its size. What enters the others is normed.
_INTO_STREAM: Final = ("o_proj", "down_proj")
# For inputs that were not read, and for what their own rounding adds.
_DAMPING: Final = 0.05
# One in so many of the layers' weights may be held in 16 bits.
_FINER: Final = 10
# Columns that make up for each other: what it takes grows with the cube of their number.
_TOGETHER: Final = 2_048


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is known of a matrix's inputs: their `centre` `[in]`, if that is taken off, and how errors are `passed_on`
    among so many columns after each other; nothing where nothing was read."""

    centre: Float32Array | None
    passed_on: tuple[Float32Array, ...]

    @classmethod
    def of(cls, values: Float32Array, weights: Float32Array, *, centred: bool) -> Self:
        """Of `values` `[tokens, in]`, of which each token counts by its share of `weights` `[tokens]`, that add up to
        1."""
        centre = weights @ values if centred else None
        left = values if centre is None else values - centre
        left = left * np.sqrt(weights)[:, np.newaxis]
        if not np.isfinite(left).all() or not left.any():
            return cls(None, ())
        parts = [left[:, start : start + _TOGETHER] for start in range(0, left.shape[1], _TOGETHER)]
        return cls(centre, tuple(passed_on_by(part.T @ part, _DAMPING) for part in parts))


def fitted_rows(
    checkpoint: Checkpoint, texts: Sequence[Sequence[int]], progress: Callable[[float], None] = lambda _fraction: None
) -> dict[str, RoundedRows]:
    """Have the decoder, turned, read `texts`, each of two tokens at least; its matrices, rounded, by linear.

    Raises `ModelError` where a weight is not finite.
    """
    checkpoint = turned(checkpoint)
    fit = _Fit()
    reader = _Reader(checkpoint.architecture, texts, fit)
    # Weights that are not finite are refused where they are rounded.
    with np.errstate(all="ignore"):
        Decoder(checkpoint, reader).build(progress)
    layers = [rows.levels.size for name, rows in fit.rounded.items() if name != _HEAD]
    for name in worst(fit.noise, {name: fit.rounded[name].levels.size for name in fit.noise}, sum(layers) // _FINER):
        matrix = checkpoint.read(name)
        fit.rounded[name] = quantize_rows_twice(spread(matrix) if is_spread(name) else matrix)
    return fit.rounded


def worst(noise: Mapping[str, float], sizes: Mapping[str, int], budget: int) -> list[str]:
    """The matrices that add most noise for their size, as many as `budget` holds; those too large for the rest of it
    are passed over."""
    found = []
    for name in sorted(noise, key=lambda name: -noise[name] / sizes[name]):
        if sizes[name] <= budget:
            budget -= sizes[name]
            found.append(name)
    return found


@dataclass(slots=True)
class _Fit:
    """`Products` as the checkpoint has them; keeps each matrix rounded.

    `noise` is what the rounding of a matrix adds to the residual stream, as a share of the stream: of those that add to
    it, whose shares can be compared.
    """

    rounded: dict[str, RoundedRows] = field(default_factory=dict)
    noise: dict[str, float] = field(default_factory=dict)
    # What was missed of a branch, squared, by token: the stream that it is added to is known later.
    _missed: tuple[str, Float32Array] | None = None
    # Gate and up multiply the same.
    _last: tuple[Float32Array, Inputs] | None = None

    def multiply(self, name: str, value: Float32Array, matrix: Float32Array) -> Float32Array:
        # Logits are of no use here.
        product = value if name == _HEAD else value @ matrix.T
        inputs = self._inputs(name, value, product)
        rounded = self.rounded[name] = fitted(spread(matrix) if is_spread(name) else matrix, inputs)
        if name.endswith(_INTO_STREAM):
            found = (spread(value) if is_spread(name) else value) @ (rounded.levels * rounded.scales[:, np.newaxis]).T
            self._missed = name, np.square(found - product).sum(axis=1)
        return product

    def added(self, stream: Float32Array) -> None:
        """The last branch was added to the residual stream, which is now `stream` `[tokens, hidden]`."""
        if self._missed is not None:
            name, missed = self._missed
            sizes = np.square(stream).sum(axis=1) + np.finfo(np.float32).tiny
            # Of tokens whose stream is one spike, as a text's first, the share is small: the mean forgets them.
            self.noise[name] = float(np.mean(missed / sizes))
            self._missed = None

    def _inputs(self, name: str, value: Float32Array, product: Float32Array) -> Inputs:
        if self._last is None or self._last[0] is not value:
            weights = np.full(len(value), 1 / len(value), np.float32)
            if name.endswith(_INTO_STREAM):
                weights = _shares(product)
            # Where next to nothing of an input is lost, there is nothing to gain by its usual value.
            centred = not is_rounded_twice(name)
            self._last = value, Inputs.of(spread(value) if is_spread(name) else value, weights, centred=centred)
        return self._last[1]


class _Reader(NumpyDialect):
    """Shows its products what is projected of every token, in place of its logits."""

    __slots__ = ()
    products: _Fit

    def norm(self, name: str, scale: Float32Array, hidden: str, branch: str | None) -> tuple[str, str]:
        stream, normed = super().norm(name, scale, hidden, branch)
        self.products.added(self._values[stream])
        return stream, normed

    def logits(self, head: Float32Array | None, normed: str) -> None:
        self.products.multiply(_HEAD, self._values[normed], self._table if head is None else head)


def fitted(matrix: Float32Array, inputs: Inputs) -> RoundedRows:
    """`matrix` `[out, in]` rounded for its inputs. Raises `ModelError` where a weight is not finite."""
    if not inputs.passed_on:
        return quantize_rows(matrix)
    scales = row_steps(matrix)
    levels = np.empty(matrix.shape, np.int8)
    start = 0
    for passed_on in inputs.passed_on:
        part = slice(start, start := start + len(passed_on))
        levels[:, part] = levels_by(passed_on, matrix[:, part], scales, INT8)
    return RoundedRows(levels, scales, inputs.centre)


def _shares(products: Float32Array) -> Float32Array:
    """Weights `[tokens]` by which tokens count alike, whatever their size."""
    weights = 1 / np.maximum(np.square(products).sum(axis=1), np.finfo(np.float32).tiny)
    shares: Float32Array = weights / weights.sum()
    return shares
