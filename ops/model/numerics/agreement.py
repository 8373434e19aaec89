"""How often a model picks the token that its float32 original picks, given the same tokens before it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from workers.graph.sources.checkpoint import Float32Array


@dataclass(frozen=True, slots=True)
class Places:
    """Of each place of a text, `[places]`: whether both models' likeliest tokens are the `same`; how much likelier the
    original holds its best token than its second (`margin`, a difference of logits), by how much the other model
    misses that difference (`missed`); and the `divergence` of its distribution from the original's (Kullback-Leibler,
    nats)."""

    same: NDArray[np.bool_]
    margin: Float32Array
    missed: Float32Array
    divergence: Float32Array

    @classmethod
    def compared(cls, original: Float32Array, other: Float32Array) -> Self:
        """By the logits `[places, vocabulary]` of both."""
        rows = np.arange(len(original))
        second, best = np.argpartition(original, -2, axis=1)[:, -2:].T
        margin = original[rows, best] - original[rows, second]
        wanted, found = _log_probabilities(original), _log_probabilities(other)
        return cls(
            # Of equal logits the first is taken, as argmax does.
            same=original.argmax(axis=1) == other.argmax(axis=1),
            margin=margin,
            missed=other[rows, best] - other[rows, second] - margin,
            divergence=np.sum(np.exp(wanted) * (wanted - found), axis=1),
        )

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        return cls(
            same=np.concatenate([part.same for part in parts]),
            margin=np.concatenate([part.margin for part in parts]),
            missed=np.concatenate([part.missed for part in parts]),
            divergence=np.concatenate([part.divergence for part in parts]),
        )


class Agreement(Struct, frozen=True, kw_only=True):
    """`agreement` is the share of `positions` where the likeliest tokens are the same, `standard_error` that of a share
    of so many; `divergence` the mean in nats; `noise` the root of the mean square of what is missed of the original's
    margins. `disputed_margins` are the original's margins where the tokens differ: median, 0.9 quantile, largest;
    `close_share` the share of all positions where the original's own margin is within `noise`."""

    prompts: int
    positions: int
    agreement: float
    standard_error: float
    divergence: float
    noise: float
    disputed_margins: tuple[float, float, float] | None
    close_share: float


def summary(places: Places, *, prompts: int) -> Agreement:
    """Of one position at least."""
    share = float(np.mean(places.same))
    noise = float(np.sqrt(np.mean(np.square(places.missed, dtype=np.float64))))
    disputed = places.margin[~places.same]
    quantiles = np.quantile(disputed, (0.5, 0.9, 1.0)) if len(disputed) else None
    return Agreement(
        prompts=prompts,
        positions=len(places.same),
        agreement=share,
        standard_error=float(np.sqrt(share * (1 - share) / len(places.same))),
        divergence=float(np.mean(places.divergence, dtype=np.float64)),
        noise=noise,
        disputed_margins=None if quantiles is None else (float(quantiles[0]), float(quantiles[1]), float(quantiles[2])),
        close_share=float(np.mean(places.margin <= noise)),
    )


def _log_probabilities(logits: Float32Array) -> Float32Array:
    below: Float32Array = logits - logits.max(axis=1, keepdims=True)
    below -= np.log(np.exp(below).sum(axis=1, keepdims=True))
    return below
